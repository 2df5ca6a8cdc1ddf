"""Alternation repair: a conversation in the shape that every provider accepts.

Providers want one assistant message between two user messages, and a tool message only as the
answer to a call. Transcripts break this when turns are interrupted, resumed or compacted.
"""

from collections.abc import Callable
from functools import reduce
from itertools import groupby
from typing import Any, Final

from hermes_orm.rows import Content, ConversationMessage

_REPLACED_BY_NEXT: Final = ("verification_required", "verify_hook_continue")


def repair_alternation(messages: list[ConversationMessage]) -> list[ConversationMessage]:
    """Return the conversation with neighbours merged and orphaned tool messages dropped.

    Repairing the result again changes nothing. A merged message keeps the keys of its first
    part. The given messages are not changed.
    """
    while True:
        repaired = _merge_runs(messages, _is_complete_assistant, _merge_assistants)
        repaired = _without_orphaned_answers(repaired)
        repaired = _merge_runs(repaired, _is_user_with_text, _merge_users)
        if len(repaired) == len(messages):
            return repaired
        messages = repaired  # a dropped tool message can make two assistants neighbours


def _merge_runs(
    messages: list[ConversationMessage],
    belongs: Callable[[ConversationMessage], bool],
    merge: Callable[[list[ConversationMessage]], ConversationMessage],
) -> list[ConversationMessage]:
    """Put one merged message in the place of each run of neighbours that belong together."""
    merged: list[ConversationMessage] = []
    for belong, run in groupby(messages, belongs):
        if belong:
            merged.append(merge(list(run)))
        else:
            merged.extend(run)
    return merged


def _is_complete_assistant(message: ConversationMessage) -> bool:
    """Whether this is an assistant message other than an interim one of Codex."""
    return message["role"] == "assistant" and not (
        message.get("codex_reasoning_items")
        or message.get("codex_message_items")
        or message.get("finish_reason") == "incomplete"
    )


def _merge_assistants(run: list[ConversationMessage]) -> ConversationMessage:
    return reduce(_merge_two_assistants, run)


def _merge_two_assistants(
    earlier: ConversationMessage, later: ConversationMessage
) -> ConversationMessage:
    if earlier.get("finish_reason") in _REPLACED_BY_NEXT:
        return later
    merged = earlier.copy()
    merged["content"] = _join_contents(earlier["content"], later["content"])
    if merged["content"] != earlier["content"]:
        merged.pop("api_content", None)  # it would be sent in place of the merged text
    if later.get("tool_calls"):
        merged["tool_calls"] = _calls(earlier) + _calls(later)
    if not earlier.get("reasoning_content") and "reasoning_content" in later:
        merged["reasoning_content"] = later["reasoning_content"]
    return merged


def _join_contents(earlier: Content, later: Content) -> Content:
    if isinstance(earlier, str) and isinstance(later, str):
        return "\n".join(filter(None, (earlier.strip(), later.strip())))
    return later if not earlier and later is not None else earlier


def _calls(message: ConversationMessage) -> list[Any]:
    """Return the tool calls of a message; a dict in place of the list is one call."""
    calls = message.get("tool_calls")
    if isinstance(calls, dict):
        return [calls] if calls else []
    return calls if isinstance(calls, list) else []


def _without_orphaned_answers(messages: list[ConversationMessage]) -> list[ConversationMessage]:
    """Drop tool messages that answer no open call of the latest assistant message."""
    kept = []
    open_calls: list[tuple[Any, Any]] = []  # the two names of each call
    for message in messages:
        if message["role"] in ("assistant", "user"):
            calls = _calls(message) if message["role"] == "assistant" else []
            open_calls = [(c.get("id"), c.get("call_id")) for c in calls if isinstance(c, dict)]
        elif message["role"] == "tool":
            name = message.get("tool_call_id")
            answered = next((names for names in open_calls if name in names), None)
            if not name or answered is None:
                continue
            open_calls.remove(answered)
        kept.append(message)
    return kept


def _is_user_with_text(message: ConversationMessage) -> bool:
    return message["role"] == "user" and isinstance(message["content"], str)


def _merge_users(run: list[ConversationMessage]) -> ConversationMessage:
    if len(run) == 1:
        return run[0]
    merged = run[0].copy()
    texts = [text for message in run if isinstance(text := message["content"], str)]
    merged["content"] = "\n\n".join(filter(None, texts))
    merged.pop("api_content", None)  # it would be sent in place of the merged text
    return merged
