"""What commands print: texts that control no terminal, times, amounts, and JSON."""

import json
import re
from datetime import datetime
from typing import Any, Final

import typer
from rich import box
from rich.console import Console, RenderableType
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from hermes_orm.demo import marked

WIDTH_OF_FILES: Final = 160
"""Columns where the output is no terminal."""

_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_BLANKS: Final = re.compile(r"\s+")

out = Console(highlight=False, emoji=False, markup=False)


def show(*parts: RenderableType) -> None:
    """Print for a person."""
    for part in parts:
        out.print(part, width=None if out.is_terminal else WIDTH_OF_FILES)


def show_json(result: Any) -> None:
    """Print for machines."""
    typer.echo(json_text(result))


def json_text(value: Any) -> str:
    """Return JSON in one line, whatever stored text holds."""
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate
        return json.dumps(value)
    return text


def table(*columns: str, right: tuple[str, ...] = (), whole: tuple[str, ...] = ()) -> Table:
    """Return a table; the columns named in `right` are numbers, those in `whole` are never cut."""
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in columns:
        is_whole = name in whole or name in right
        made.add_column(
            name,
            justify="right" if name in right else "left",
            overflow="fold" if is_whole else "ellipsis",
            no_wrap=True,
            min_width=None if is_whole else 8,
        )
    return made


def plain(text: str) -> str:
    """Return text without what a terminal would obey, such as escape sequences."""
    return _CONTROLS.sub("\ufffd", text.replace("\r\n", "\n"))


def line(text: str | None) -> str:
    """Return text in one line."""
    return _BLANKS.sub(" ", plain(text or "")).strip()


def snippet(text: str) -> Text:
    """Return the snippet of a hit with its matches set off."""
    return marked(line(text))


def moment(seconds: float | None) -> str:
    """Return a Unix time as local date and time."""
    if seconds is None:
        return ""
    try:
        return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M")
    except (ValueError, OverflowError, OSError):
        return "?"


def amount(number: int | None) -> str:
    """Return a number with separators."""
    return f"{number or 0:,}"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun in the singular or plural."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def dollars(cost: float | None) -> str:
    """Return a cost in US dollars."""
    if not cost:
        return ""
    return f"${cost:,.2f}" if cost >= 0.01 else f"${cost:.4f}"


def size(number: int | None) -> str:
    """Return a number of bytes."""
    return "unknown" if number is None else decimal(number)
