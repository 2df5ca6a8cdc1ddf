"""Rows of `messages`: from the arguments and dicts of callers, and back to dicts."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypedDict, cast

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
from hermes_orm.rows import MessageRow

MESSAGE_KEYS: Final = tuple(MessageRow.__annotations__)
"""The columns, in order, of the rows that `decode_row` takes."""

_CLOCK_STEP: Final = 1e-6


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


def encode_message(
    marker: str,
    *,
    now: float,
    role: object,
    content: object = None,
    tool_name: object = None,
    tool_calls: object = None,
    tool_call_id: object = None,
    token_count: object = None,
    finish_reason: object = None,
    reasoning: object = None,
    reasoning_content: object = None,
    reasoning_details: object = None,
    codex_reasoning_items: object = None,
    codex_message_items: object = None,
    platform_message_id: object = None,
    observed: object = False,
    effect_disposition: object = None,
    timestamp: object = None,
    api_content: object = None,
    display_kind: object = None,
    display_metadata: object = None,
    compressed_summary: object = False,
) -> EncodedMessage:
    """Return the row of one message; `now` is its time when `timestamp` is none."""
    calls, tool_call_count = encode_tool_calls(tool_calls)
    return {
        "role": "unknown" if role is None else cast(str, encode_text(role)),
        "content": encode_content(marker, content),
        "tool_call_id": encode_text(tool_call_id),
        "tool_calls": calls,
        "tool_name": encode_text(tool_name),
        "effect_disposition": encode_text(effect_disposition),
        "timestamp": encode_timestamp(timestamp, now),
        "token_count": encode_integer(token_count),
        "finish_reason": encode_text(finish_reason),
        "reasoning": encode_text(reasoning),
        "reasoning_content": encode_text(reasoning_content),
        "reasoning_details": encode_json(reasoning_details),
        "codex_reasoning_items": encode_json(codex_reasoning_items),
        "codex_message_items": encode_json(codex_message_items),
        "platform_message_id": encode_text(platform_message_id),
        "observed": 1 if observed else 0,
        "_compressed_summary": 1 if compressed_summary else 0,
        "api_content": encode_api_content(marker, api_content),
        "display_kind": encode_text(display_kind) if isinstance(display_kind, str) else None,
        "display_metadata": encode_display_metadata(display_metadata),
        "message_uid": os.urandom(16).hex(),
        "tool_call_count": tool_call_count,
    }


def encode_rows(marker: str, messages: Sequence[object], *, now: float) -> list[EncodedMessage]:
    """Return the rows of message dicts, without changing them.

    Takes conversation dicts and dicts of `get_messages`; unknown keys are ignored, reasoning
    counts for assistants only. Rows without a time get one from a clock that starts at `now` and
    stays ahead of the rows before. Raises TypeError when an element is not a mapping.
    """
    rows = []
    for position, message in enumerate(messages):
        if not (message.__class__ is dict or isinstance(message, Mapping)):
            kind = type(message).__name__
            raise TypeError(f"messages[{position}] must be a mapping such as a dict, not {kind}")
        row = _encode_mapping(marker, cast(Mapping[str, Any], message), now)
        rows.append(row)
        now = max(now, row["timestamp"]) + _CLOCK_STEP
    return rows


def _encode_mapping(marker: str, message: Mapping[str, Any], now: float) -> EncodedMessage:
    get = message.get
    role = get("role")
    thinks = role == "assistant"
    platform_message_id = get("platform_message_id")
    return encode_message(
        marker,
        now=now,
        role=role,
        content=get("content"),
        tool_name=get("tool_name"),
        tool_calls=get("tool_calls"),
        tool_call_id=get("tool_call_id"),
        token_count=get("token_count"),
        finish_reason=get("finish_reason"),
        reasoning=get("reasoning") if thinks else None,
        reasoning_content=get("reasoning_content") if thinks else None,
        reasoning_details=get("reasoning_details") if thinks else None,
        codex_reasoning_items=get("codex_reasoning_items") if thinks else None,
        codex_message_items=get("codex_message_items") if thinks else None,
        platform_message_id=platform_message_id or get("message_id", platform_message_id),
        observed=get("observed"),
        effect_disposition=get("effect_disposition"),
        timestamp=get("timestamp"),
        api_content=get("api_content"),
        display_kind=get("display_kind"),
        display_metadata=get("display_metadata"),
        compressed_summary=get("_compressed_summary"),
    )


def decode_row(row: Sequence[Any]) -> MessageRow:
    """Return the dict of one row whose columns are `MESSAGE_KEYS`."""
    message: Any = dict(zip(MESSAGE_KEYS, row, strict=True))
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
