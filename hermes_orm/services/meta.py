"""Settings written by the store, or within a transaction of the caller."""

from __future__ import annotations

from typing import Any

from hermes_orm.database import Database
from hermes_orm.dialects.joining import run_in
from hermes_orm.repositories.meta import SET_META, MetaRepository, setting


async def set_meta(
    database: Database, key: str, value: str | float | None, *, cursor: Any = None
) -> None:
    """Store `value` under `key`; numbers as their text, None as NULL.

    With `cursor`, an object of the same database with an awaitable `execute` (a connection, cursor
    or session of SQLAlchemy or of the driver), the write belongs to the transaction of that object:
    nothing is locked or committed here. Raises ValueError for a key that is None or holds U+0000 or
    a lone surrogate, TypeError for any other type of value.
    """
    row = setting(key, value)
    if cursor is None:
        await database.write(lambda tx: MetaRepository(tx).set_meta(row), scope="statement")
    else:
        await run_in(cursor, database.dialect.name, SET_META, row)
