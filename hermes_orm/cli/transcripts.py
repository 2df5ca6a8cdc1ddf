"""A session as a person reads it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from hermes_orm.cli.display import amount, dollars, line, moment, plain
from hermes_orm.rows import MessageRow, SessionRow

STYLES: Final = {"user": "bold cyan", "assistant": "bold green", "tool": "yellow"}
LINES: Final = 6
"""Of reasoning and of a tool's result, unless all is asked for."""
CHARACTERS: Final = 500
ARGUMENTS: Final = 100
"""Characters of a tool call's arguments."""


def heading(session: SessionRow) -> RenderableType:
    """Return what is known of a session, without what is empty."""
    tokens = f"{amount(session['input_tokens'])} in, {amount(session['output_tokens'])} out"
    cost = dollars(session["actual_cost_usd"] or session["estimated_cost_usd"])
    ended = moment(session["ended_at"])
    facts = {
        "session": session["id"],
        "title": session["title"],
        "source": session["source"],
        "model": session["model"],
        "started": moment(session["started_at"]),
        "ended": f"{ended} ({session['end_reason']})" if ended else "still open",
        "parent": session["parent_session_id"],
        "directory": session["cwd"],
        "messages": f"{amount(session['message_count'])},"
        f" {amount(session['tool_call_count'])} tool calls",
        "tokens": f"{tokens}, {cost}" if cost else tokens,
        "state": ", ".join(flag for flag in ("archived", "pinned", "hidden") if session[flag]),
    }
    shown = Table.grid(padding=(0, 2))
    for name, value in facts.items():
        if value:
            shown.add_row(Text(name, "dim"), line(value))
    return shown


def transcript(messages: Iterable[MessageRow], *, is_full: bool) -> Iterator[RenderableType]:
    """Yield each message under a line with its speaker, time and row id."""
    for message in messages:
        role = message["role"]
        states = [] if message["active"] else ["archived" if message["compacted"] else "undone"]
        names = [line(message["tool_name"])] if message["tool_name"] else []
        told = "  ".join([*names, moment(message["timestamp"]), f"#{message['id']}", *states])
        said = [*_said(message, is_full=is_full)]
        head = Text.assemble((line(role), STYLES.get(role, "bold")), "  ", (told, "dim"))
        yield Group(head, Padding(Group(*said), (0, 0, 1, 2), expand=False))


def _said(message: MessageRow, *, is_full: bool) -> Iterator[Text]:
    """Yield what a message says: reasoning, text or parts, tool calls."""
    reasoning = message["reasoning"] or message["reasoning_content"]
    if reasoning:
        yield Text(f"(thinks) {_shortened(plain(reasoning), is_full)}", "dim italic")
    is_result = message["role"] == "tool"
    for text in _texts(message["content"]):
        yield Text(_shortened(text, is_full or not is_result))
    calls = message["tool_calls"]
    for call in calls if isinstance(calls, list) else ():
        yield Text(f"-> {_call(call, is_full=is_full)}", "yellow")


def _texts(content: Any) -> Iterator[str]:
    """Yield the texts of content, and the kinds of its other parts."""
    if isinstance(content, str):
        if content:
            yield plain(content)
        return
    for part in content if isinstance(content, list) else [content] if content else []:
        text = part.get("text") if isinstance(part, dict) else part
        if isinstance(text, str):
            yield plain(text)
        else:
            kind = part.get("type") if isinstance(part, dict) else None
            yield f"({line(str(kind or 'data'))})"


def _call(call: Any, *, is_full: bool) -> str:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return line(json.dumps(call, ensure_ascii=False))[:ARGUMENTS]
    given = function.get("arguments")
    given = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
    arguments = plain(given) if is_full else line(given)
    if not is_full and len(arguments) > ARGUMENTS:
        arguments = arguments[:ARGUMENTS] + " ..."
    return f"{line(str(function.get('name')))}({arguments})"


def _shortened(text: str, is_full: bool) -> str:
    """Return the beginning of a text, and how much follows."""
    lines = text[:CHARACTERS].split("\n")[:LINES]
    short = "\n".join(lines)
    if is_full or len(short) >= len(text.rstrip()):
        return text
    return f"{short} ... ({len(text) - len(short):,} more characters)"
