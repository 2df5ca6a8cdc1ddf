"""Conversation projection: from rows of `messages` to the messages a model sees."""

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import compress
from typing import Any, Final, cast

from hermes_orm.codec import (
    decode_api_content,
    decode_content,
    decode_display_metadata,
    decode_json,
    decode_tool_calls,
)
from hermes_orm.rows import ConversationMessage

_SIDECARS: Final[dict[str, Callable[[Any], Any]]] = {
    "api_content": decode_api_content,
    "display_kind": str,
    "display_metadata": decode_display_metadata,
    "timestamp": float,
    "tool_call_id": str,
    "tool_name": str,
    "effect_disposition": str,
    "tool_calls": decode_tool_calls,
    "platform_message_id": str,
    "observed": bool,
}
_THOUGHTS: Final[dict[str, Callable[[Any], Any]]] = {  # of assistants only
    "finish_reason": str,
    "reasoning": str,
    "reasoning_content": str,
    "reasoning_details": decode_json,
    "codex_reasoning_items": decode_json,
    "codex_message_items": decode_json,
}

CONVERSATION_COLUMNS: Final = ("id", "role", "content", *_SIDECARS, *_THOUGHTS)
"""The columns, in order, of the rows that a `Projection` takes; later columns are ignored."""

_SIDECAR_DECODERS: Final = tuple(
    ("message_id" if column == "platform_message_id" else column, decode)
    for column, decode in _SIDECARS.items()
)
_THOUGHT_DECODERS: Final = tuple(_THOUGHTS.items())
_FIRST_SIDECAR: Final = 3
_FIRST_THOUGHT: Final = _FIRST_SIDECAR + len(_SIDECARS)

HARNESS_PROMPTS: Final = (
    "Review the conversation above and update the skill library",
    "Review the conversation above and consider saving to memory",
)
"""How prompts begin that the agent's harness, not the user, has put into a transcript."""

_MEMORY_CLOSING: Final = re.compile(r"</\s*memory-context\s*>", re.IGNORECASE)
_MEMORY_BLOCK: Final = re.compile(
    r"<\s*memory-context\s*>.*?</\s*memory-context\s*>", re.IGNORECASE | re.DOTALL
)
_MEMORY_TAG: Final = re.compile(r"</?\s*memory-context\s*>", re.IGNORECASE)
_MEMORY_NOTE: Final = re.compile(
    r"\[System note:\s*The following is recalled memory context,\s*NOT new user input\.\s*"
    r"Treat as (?:informational background data|authoritative reference data[^\]]*)\.\]\s*",
    re.IGNORECASE,
)
_STALE_MARKER: Final = re.compile(r"\[[A-Za-z_][A-Za-z0-9_.\-]*\]")


class Projection:
    """Collects the messages of a conversation from slices of rows in the order of their ids.

    Recalled memory is cleaned out of user and assistant text, prompts of the harness and their
    answers are left out, bracketed markers next to tool calls are emptied. `deduplicate` drops a
    user message that repeats one since the last answer, as replayed transcripts do.
    """

    def __init__(self, *, deduplicate: bool = False, with_row_ids: bool = False) -> None:
        self.messages: list[ConversationMessage] = []
        self._with_row_ids = with_row_ids
        self._unanswered: set[str] | None = set() if deduplicate else None
        self._after_harness_prompt = False

    def add(self, rows: Iterable[Sequence[Any]]) -> None:
        """Append the messages of rows whose first columns are `CONVERSATION_COLUMNS`."""
        for row in rows:
            message = _project(row, self._with_row_ids)
            if not (self._is_replay(message) or self._belongs_to_harness(message)):
                self.messages.append(message)

    def _is_replay(self, message: ConversationMessage) -> bool:
        """Whether an equal user message is still unanswered; remembers what was asked."""
        asked = self._unanswered
        if asked is None:
            return False
        role, content = message["role"], message["content"]
        if role == "user" and content and isinstance(content, str):
            if content in asked:
                return True
            asked.add(content)
        elif role == "assistant" and (content or message.get("tool_calls")):
            asked.clear()
        return False

    def _belongs_to_harness(self, message: ConversationMessage) -> bool:
        """Whether this is a prompt of the harness, or the assistant message right after one."""
        role, content = message["role"], message["content"]
        is_prompt = (
            role in ("user", "system")
            and isinstance(content, str)
            and content.lstrip().startswith(HARNESS_PROMPTS)
        )
        is_answer = self._after_harness_prompt and role == "assistant"
        self._after_harness_prompt = is_prompt
        return is_prompt or is_answer


def conversation(
    rows: Iterable[Sequence[Any]], *, deduplicate: bool = False, with_row_ids: bool = False
) -> list[ConversationMessage]:
    """Return the messages of rows whose first columns are `CONVERSATION_COLUMNS`."""
    projection = Projection(deduplicate=deduplicate, with_row_ids=with_row_ids)
    projection.add(rows)
    return projection.messages


def clean_context(text: str) -> str:
    """Return text without recalled memory: its blocks, its notes, its leftover tags."""
    if not ("<" in text or "[" in text) or "memory" not in text.lower():
        return text
    end = max((closing.end() for closing in _MEMORY_CLOSING.finditer(text)), default=0)
    text = _MEMORY_BLOCK.sub("", text[:end]) + text[end:]  # no block is closed behind `end`
    return _MEMORY_TAG.sub("", _MEMORY_NOTE.sub("", text))


def _project(row: Sequence[Any], with_row_id: bool) -> ConversationMessage:
    """Return the message of one row; keys without a value are left out."""
    role, content = row[1], decode_content(row[2])
    is_assistant = role == "assistant"
    if isinstance(content, str) and (is_assistant or role == "user"):
        content = clean_context(content).strip()
    message: Any = {"role": role, "content": content}
    if with_row_id:
        message["_row_id"] = row[0]
    sidecars = row[_FIRST_SIDECAR:_FIRST_THOUGHT]
    given = compress(_SIDECAR_DECODERS, sidecars)  # most are empty
    for (key, decode), stored in zip(given, filter(None, sidecars), strict=True):
        if (value := decode(stored)) is not None:
            message[key] = value
    if is_assistant:
        _add_thoughts(message, row[_FIRST_THOUGHT:])
        _strip_stale_marker(message)
    return cast(ConversationMessage, message)


def _add_thoughts(message: dict[str, Any], thoughts: Sequence[Any]) -> None:
    """Add what only assistants have; providers tell empty reasoning content from none."""
    for (key, decode), stored in zip(_THOUGHT_DECODERS, thoughts, strict=False):
        if stored or (stored is not None and key == "reasoning_content"):
            message[key] = decode(stored)


def _strip_stale_marker(message: dict[str, Any]) -> None:
    """Empty a text that is only a bracketed marker, with the text last sent in its place."""
    content = message["content"]
    if not (isinstance(content, str) and content[:1] == "[" and message.get("tool_calls")):
        return
    if _STALE_MARKER.fullmatch(content):
        message["content"] = ""
        message.pop("api_content", None)
