"""Rows of `messages`: from the arguments and dicts of callers, and back to dicts."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Required, TypeAlias, TypedDict, Unpack, cast

from hermes_orm.codec import (
    decode_api_content,
    decode_content,
    decode_display_metadata,
    decode_tool_calls,
    encode_api_content,
    encode_content,
    encode_display_metadata,
    encode_integer,
    encode_json,
    encode_text,
    encode_timestamp,
    encode_tool_calls,
)
from hermes_orm.repositories.keyed import Keyed
from hermes_orm.rows import MessageRow
from hermes_orm.session_text import indexed_text

MESSAGE_KEYS: Final = tuple(MessageRow.__annotations__)
"""The columns, in order, of the rows that `decode_row` takes."""

_keyed: Final = Keyed(MESSAGE_KEYS)

_CLOCK_STEP: Final = 1e-6
_Get: TypeAlias = Callable[[str], Any]


class EncodedMessage(TypedDict):
    """A live row, ready to be bound; all of the row but `session_id`.

    `tool_call_count` is no column: it is what the row adds to the counter of its session.
    """

    role: str
    content: str | None
    tool_call_id: str | None
    tool_calls: str | None
    tool_name: str | None
    effect_disposition: str | None
    timestamp: float
    token_count: int | None
    finish_reason: str | None
    reasoning: str | None
    reasoning_content: str | None
    reasoning_details: str | None
    codex_reasoning_items: str | None
    codex_message_items: str | None
    platform_message_id: str | None
    observed: int
    _compressed_summary: int
    api_content: str | None
    display_kind: str | None
    display_metadata: str | None
    message_uid: str
    tool_call_count: int


class MessageArguments(TypedDict, total=False):
    """What `append_message` takes of a message; anything may be of an odd type."""

    role: Required[object]
    content: object
    tool_name: object
    tool_calls: object
    tool_call_id: object
    token_count: object
    finish_reason: object
    reasoning: object
    reasoning_content: object
    reasoning_details: object
    codex_reasoning_items: object
    codex_message_items: object
    platform_message_id: object
    observed: object
    effect_disposition: object
    timestamp: object
    api_content: object
    display_kind: object
    display_metadata: object


def encode_message(
    marker: str, *, now: float, **message: Unpack[MessageArguments]
) -> EncodedMessage:
    """Return the row of one message; `now` is its time when `timestamp` is none."""
    return _encode(marker, message.get, message.get, now)


def encode_rows(marker: str, messages: Iterable[object], *, now: float) -> Iterator[EncodedMessage]:
    """Yield the rows of message dicts, without changing them.

    Takes conversation dicts and dicts of `get_messages`; unknown keys are ignored, reasoning
    counts for assistants only. Rows without a time get one from a clock that starts at `now` and
    stays ahead of the rows before. Raises TypeError when an element is not a mapping.
    """
    for position, message in enumerate(messages):
        if not isinstance(message, Mapping):
            kind = type(message).__name__
            raise TypeError(f"messages[{position}] must be a mapping such as a dict, not {kind}")
        get = message.get
        row = _encode(marker, get, get if get("role") == "assistant" else _nothing, now)
        yield row
        now = max(now, row["timestamp"]) + _CLOCK_STEP


def _nothing(key: str) -> None:
    """Stand in for `dict.get` where the keys are not to be read."""


def _encode(marker: str, get: _Get, thought: _Get, now: float) -> EncodedMessage:
    """Return the row of a message that is read by `get`, its reasoning by `thought`."""
    role, display_kind = get("role"), get("display_kind")
    platform_message_id = get("platform_message_id")
    if not platform_message_id and (alias := get("message_id")) is not None:
        platform_message_id = alias
    tool_calls, tool_call_count = encode_tool_calls(get("tool_calls"))
    return {
        "role": "unknown" if role is None else cast(str, encode_text(role)),
        "content": encode_content(marker, get("content")),
        "tool_call_id": encode_text(get("tool_call_id")),
        "tool_calls": tool_calls,
        "tool_name": encode_text(get("tool_name")),
        "effect_disposition": encode_text(get("effect_disposition")),
        "timestamp": encode_timestamp(get("timestamp"), now),
        "token_count": encode_integer(get("token_count")),
        "finish_reason": encode_text(get("finish_reason")),
        "reasoning": encode_text(thought("reasoning")),
        "reasoning_content": encode_text(thought("reasoning_content")),
        "reasoning_details": encode_json(thought("reasoning_details")),
        "codex_reasoning_items": encode_json(thought("codex_reasoning_items")),
        "codex_message_items": encode_json(thought("codex_message_items")),
        "platform_message_id": indexed_text(platform_message_id, "platform message id"),
        "observed": 1 if get("observed") else 0,
        "_compressed_summary": 1 if get("_compressed_summary") else 0,
        "api_content": encode_api_content(marker, get("api_content")),
        "display_kind": encode_text(display_kind) if isinstance(display_kind, str) else None,
        "display_metadata": encode_display_metadata(get("display_metadata")),
        "message_uid": os.urandom(16).hex(),
        "tool_call_count": tool_call_count,
    }


def decode_row(row: Sequence[Any]) -> MessageRow:
    """Return the dict of one row whose columns are `MESSAGE_KEYS`."""
    message: Any = _keyed(row)
    message["content"] = decode_content(message["content"])
    if message["tool_calls"] is not None:
        message["tool_calls"] = decode_tool_calls(message["tool_calls"])
    if message["api_content"] is not None:
        message["api_content"] = decode_api_content(message["api_content"])
    if message["display_metadata"] is not None:
        message["display_metadata"] = decode_display_metadata(message["display_metadata"])
    if message["observed"] is None:  # nullable in files of other programs
        message["observed"] = 0
    if message["active"] is None:
        message["active"] = 1
    return cast(MessageRow, message)
