"""Stored values in a form that both databases agree about.

What only one of them can hold gets its nearest portable value: U+0000 outside of content becomes
U+FFFD, text in a column of numbers its number. The marker of structured content and strings with
U+0000 differ in their spelling only: the portable form of content has PostgreSQL's marker, and
U+0000 as it is.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final

from sqlalchemy import BigInteger, Column, Float, Integer, LargeBinary, Text
from sqlalchemy.types import TypeEngine

from hermes_orm.codec import (
    MARKER_LENGTH,
    POSTGRESQL_MARKER,
    SQLITE_MARKER,
    decode_content,
    encode_text,
    is_encodable,
    plain_text,
)

CONTENT_COLUMNS: Final = frozenset({("messages", "content"), ("messages", "api_content")})
"""Columns whose texts may have the marker of structured content."""
MARKERS: Final = (SQLITE_MARKER, POSTGRESQL_MARKER)

Convert = Callable[[Any], Any]


def portable_content(stored: str) -> str:
    """Return the portable form of stored content."""
    if not stored.startswith(MARKERS):
        return stored
    value = decode_content(stored)
    if not isinstance(value, str):
        return POSTGRESQL_MARKER + stored[MARKER_LENGTH:]
    if value.startswith(MARKERS) or not is_encodable(value):
        return POSTGRESQL_MARKER + json.dumps(value)
    return value


def stored_content(marker: str, portable: str | None) -> str | None:
    """Return portable content as the database of `marker` stores it."""
    if portable is None:
        return None
    if portable.startswith(POSTGRESQL_MARKER):
        return marker + portable[MARKER_LENGTH:]
    if marker != SQLITE_MARKER and "\0" in portable:
        return marker + json.dumps(portable)
    return portable


def _text(value: Any) -> Any:
    return value if type(value) is str and "\0" not in value else encode_text(value)


def _content(value: Any) -> Any:
    return portable_content(value if type(value) is str else plain_text(value))


def _real(value: Any) -> float | None:
    try:
        number = value if type(value) is float else float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    if number == 0.0:
        return 0.0  # SQLite keeps no sign of it
    return None if math.isnan(number) else number


def _integer(bits: int, value: Any) -> int | None:
    limit = 1 << (bits - 1)
    try:
        number = value if type(value) is int else int(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if -limit <= number < limit else None


def _octets(value: Any) -> bytes | None:
    if isinstance(value, str):
        return value.encode(errors="replace")
    return bytes(value) if isinstance(value, bytes | bytearray | memoryview) else None


def _conversion(column: Column[Any]) -> tuple[Convert, Any]:
    """Return how a value of a column becomes portable, and what stands for a lost one."""
    of: TypeEngine[Any] = column.type
    default = None if column.nullable else 0
    if (column.table.name, column.name) in CONTENT_COLUMNS:
        return _content, None
    if isinstance(of, Text):
        return _text, None
    if isinstance(of, Float):
        return _real, None if column.nullable else 0.0
    if isinstance(of, LargeBinary):
        return _octets, None if column.nullable else b""
    if isinstance(of, Integer):
        return partial(_integer, 64 if isinstance(of, BigInteger) else 32), default
    raise TypeError(f"{column} has a type that no portable values are defined for")


class Conversion:
    """What becomes of the values of some columns of a table on their way to another database."""

    def __init__(self, columns: Sequence[Column[Any] | None]) -> None:
        """None stands for a column that no model describes; its values are left alone."""
        self._columns = columns
        self._how = [None if column is None else _conversion(column) for column in columns]
        self._is_content = [
            column is not None and (column.table.name, column.name) in CONTENT_COLUMNS
            for column in columns
        ]
        self.changed: dict[str, int] = {}
        """How many values were not portable, by column."""

    def portable(self, rows: Iterable[Sequence[Any]]) -> list[tuple[Any, ...]]:
        """Return rows in their portable form."""
        cells = [self._portable(place, values) for place, values in enumerate(zip(*rows))]  # noqa: B905
        return list(zip(*cells, strict=True))

    def _portable(self, place: int, values: tuple[Any, ...]) -> Sequence[Any]:
        how, column = self._how[place], self._columns[place]
        if how is None or column is None:
            return values
        convert, lost = how
        converted = [None if value is None else convert(value) for value in values]
        if self._is_content[place]:
            return converted
        changed = 0
        for position, value in enumerate(values):
            if value is not None and converted[position] is not value:
                if converted[position] is None:
                    converted[position] = lost
                changed += converted[position] != value
        if changed:
            name = f"{column.table.name}.{column.name}"
            self.changed[name] = self.changed.get(name, 0) + changed
        return converted

    def stored(self, marker: str, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Return portable rows as the database of `marker` stores them."""
        if not any(self._is_content):
            return rows
        cells: list[Sequence[Any]] = [
            [stored_content(marker, value) for value in values] if is_content else values
            for values, is_content in zip(zip(*rows, strict=True), self._is_content, strict=False)
        ]
        return list(zip(*cells, strict=True))
