"""What commands print: texts that control no terminal, times, amounts, and JSON."""

import json
import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final

import typer
from rich import box
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from hermes_orm.demo import marked

WIDTH_OF_FILES: Final = 160
"""Columns where the output is no terminal."""
NARROWEST: Final = 24
"""Columns of what may be cut."""
GAP: Final = 3
"""Between two columns of a table."""

_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_BLANKS: Final = re.compile(r"\s+")


def console() -> Console:
    """Return the console that standard output is now."""
    made = Console(highlight=False, emoji=False, markup=False)
    if not made.is_terminal:
        made.width = WIDTH_OF_FILES
    return made


def show(*parts: RenderableType) -> None:
    """Print for a person."""
    out = console()
    for part in parts:
        out.print(part)


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


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str | Text]],
    *,
    right: Sequence[str] = (),
    optional: Sequence[str] = (),
    wraps: bool = False,
) -> Table:
    """Return a table with whole cells, but for the last column, which is cut or `wraps`.

    The columns named in `right` hold numbers. On a narrow terminal those named in `optional` are
    left out, the first first.
    """
    cells = dict(zip(columns, zip(columns, *rows, strict=True), strict=True))
    widths = {name: max(cell_len(str(cell)) for cell in cells[name]) for name in columns}
    last = columns[-1]
    left = console().width - sum(widths[name] + GAP for name in columns[:-1])
    for name in optional:
        if left < min(widths[last], NARROWEST):
            left += widths.pop(name) + GAP
    widths[last] = min(widths[last], max(left, NARROWEST))
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name, width in widths.items():
        made.add_column(
            name,
            justify="right" if name in right else "left",
            overflow="fold" if wraps or name != last else "ellipsis",
            no_wrap=not (wraps and name == last),
            width=width,
        )
    for row in zip(*(cells[name][1:] for name in widths), strict=True):
        made.add_row(*row)
    return made


def short(text: str | None, width: int = 20) -> str:
    """Return the beginning of a text, in one line."""
    whole = Text(line(text))
    whole.truncate(width, overflow="ellipsis")
    return whole.plain


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
