"""An exported session as a Markdown text for people."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final, cast

from hermes_orm.repositories.portability.rows import ExportedLineage, ExportedSession
from hermes_orm.rows import MessageRow

_FENCES: Final = re.compile(r"`{3,}")
_ROLES: Final = {"user": "User", "assistant": "Assistant", "tool": "Tool", "system": "System"}


def session_markdown(exported: ExportedSession | ExportedLineage) -> str:
    """Return an exported session, or a whole compressed conversation, as Markdown.

    A heading per message, tool calls and results as code blocks, reasoning as quotations; pictures
    and other attachments are named, not contained.
    """
    segments = cast(Mapping[str, Any], exported).get("segments") or [exported]
    blocks = [f"# {_line(exported['title'] or exported['id'])}", "\n".join(_facts(exported))]
    if exported["system_prompt"]:
        blocks += ["## System prompt", _fenced(exported["system_prompt"], "text")]
    for segment in segments:
        if len(segments) > 1:
            blocks += ["---", f"*Session `{segment['id']}`, {_time(segment['started_at'])}*"]
        for message in segment["messages"]:
            blocks += _message(message)
    return "\n\n".join(blocks) + "\n"


def _facts(session: ExportedSession) -> Iterator[str]:
    """Yield the lines of a list that says what the session is."""
    tokens = f"{session['input_tokens'] or 0:,} in, {session['output_tokens'] or 0:,} out"
    cost = session["actual_cost_usd"]
    if cost is None:
        cost = session["estimated_cost_usd"]
    ended = session["ended_at"] and f"{_time(session['ended_at'])} ({session['end_reason']})"
    facts = {
        "Session": f"`{session['id']}`",
        "Source": session["source"],
        "Model": session["model"],
        "Started": _time(session["started_at"]),
        "Ended": ended,
        "Parent": session["parent_session_id"] and f"`{session['parent_session_id']}`",
        "Directory": session["cwd"] and f"`{session['cwd']}`",
        "Messages": f"{len(session['messages']):,}",
        "Tokens": tokens,
        "Cost": cost and f"${cost:,.4f}",
    }
    for name, value in facts.items():
        if value:
            yield f"- **{name}:** {_line(value)}"


def _message(message: MessageRow) -> Iterator[str]:
    role, at = message["role"], _time(message["timestamp"])
    name = _ROLES.get(role, _line(role)) + (
        f" `{message['tool_name']}`" * bool(message["tool_name"])
    )
    yield f"## {name} · {at}" if at else f"## {name}"
    reasoning = message["reasoning_content"] or message["reasoning"]
    if reasoning:
        yield "\n".join(f"> {line}".rstrip() for line in reasoning.splitlines())
    text = _text(message["content"])
    if text:
        yield _fenced(text, "text") if role == "tool" else text
    calls = message["tool_calls"]
    for call in calls if isinstance(calls, list) else [calls] if calls else []:
        yield from _call(call)


def _call(call: Any) -> Iterator[str]:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        yield _fenced(_json(call), "json")
        return
    yield f"Calls `{function.get('name')}`:"
    arguments = function.get("arguments")
    try:
        arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
    except (ValueError, RecursionError):
        yield _fenced(str(arguments), "text")
    else:
        yield _fenced(_json(arguments), "json")


def _text(content: Any) -> str:
    """Return message content as Markdown, its parts one after the other."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        return _fenced(_json(content), "json")
    return "\n\n".join(_part(part) for part in content)


def _part(part: Any) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, dict) and isinstance(part.get("text"), str):
        return str(part["text"])
    kind = part.get("type") if isinstance(part, dict) else None
    return f"*[{_line(kind)}]*" if isinstance(kind, str) else _fenced(_json(part), "json")


def _fenced(text: str, language: str) -> str:
    """Return a code block whose fence is longer than any in the text."""
    longest = max((len(found) for found in _FENCES.findall(text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


def _line(text: object) -> str:
    return " ".join(str(text).split())


def _time(seconds: float | None) -> str:
    try:
        return f"{datetime.fromtimestamp(cast(float, seconds), UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (TypeError, ValueError, OverflowError, OSError):
        return ""
