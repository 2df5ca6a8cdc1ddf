"""Text that is no UTF-8: its row is read with U+FFFD in place of the bytes, and reported.

SQLite stores any bytes as text, and the driver then refuses the whole statement. Reading every
cell by a function of ours would be slow, so only a statement that failed is read again like that.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from sqlalchemy import Column, Table, exc
from sqlalchemy.sql import visitors

from hermes_orm.dialects.base import Row
from hermes_orm.dialects.prepared import Params, Prepared
from hermes_orm.dialects.sqlite import driver as sqlite_driver

logger = logging.getLogger("hermes_orm.sqlite")


class _Replaced(str):
    """What is left of an undecodable cell."""

    __slots__ = ()


@functools.cache
def failures() -> tuple[type[Exception], ...]:
    """Return the classes of errors that a statement may raise, SQLAlchemy's among them."""
    return sqlite_driver.module().Error, exc.DBAPIError


def is_undecodable(error: Exception) -> bool:
    """Whether the driver met text that is no UTF-8."""
    return "Could not decode to UTF-8" in str(error)


def read_replacing(
    driver: Any, fetch: Callable[[], Sequence[Row]], statement: Prepared, params: Params
) -> list[Row]:
    """Return the rows that `fetch` reads from `driver`, undecodable bytes replaced.

    A warning names table, row and column of each such cell.
    """
    driver.text_factory = _decoded
    try:
        rows = fetch()
    finally:
        driver.text_factory = str
    return [_reported(row, statement, params) for row in rows]


def _decoded(stored: bytes) -> str:
    try:
        return stored.decode()
    except UnicodeDecodeError:
        return _Replaced(stored.decode(errors="replace"))


def _reported(row: Row, statement: Prepared, params: Params) -> Row:
    damaged = [place for place, cell in enumerate(row) if type(cell) is _Replaced]
    if not damaged:
        return row
    selected: Any = statement.statement
    stored = [_stored(column) for column in selected.selected_columns]
    for place in damaged:
        if (column := stored[place]) is not None:
            keys = [cell for cell, of in zip(row, stored, strict=True) if _identifies(of, column)]
            logger.warning(
                "%s: %s of row %r is no UTF-8; undecodable bytes are read as U+FFFD",
                column.table.name,
                column.name,
                keys[0] if keys else params.get("session_id"),
            )
    return tuple(str(cell) if type(cell) is _Replaced else cell for cell in row)


def _identifies(column: Column[Any] | None, other: Column[Any]) -> bool:
    return column is not None and column.primary_key and column.table is other.table


def _stored(expression: Any) -> Column[Any] | None:
    """Return the first column of a table that an expression reads."""
    elements: Iterable[Any] = visitors.iterate(expression)
    for element in elements:
        for column in getattr(element, "base_columns", ()):
            if isinstance(getattr(column, "table", None), Table):
                found: Column[Any] = column
                return found
    return None
