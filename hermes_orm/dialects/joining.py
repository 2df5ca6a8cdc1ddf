"""Run a prepared statement inside somebody else's transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from sqlalchemy.dialects.postgresql.asyncpg import dialect as asyncpg_dialect
from sqlalchemy.dialects.postgresql.psycopg import dialect_async as psycopg_dialect
from sqlalchemy.dialects.sqlite.aiosqlite import dialect as aiosqlite_dialect

from hermes_orm.dialects.prepared import CompiledText, Params, Prepared

# How `execute` takes its arguments: the usual driver's of a database, or a library's.
_ARGUMENTS: Final[Mapping[str, tuple[Any, Callable[[CompiledText, Params], tuple[Any, ...]]]]] = {
    "asyncpg": (asyncpg_dialect(), lambda text, params: text.values(params)),
    "postgresql": (psycopg_dialect(), lambda text, params: (text.named(params),)),
    "sqlite": (aiosqlite_dialect(), lambda text, params: (text.values(params),)),
}


async def run_in(cursor: Any, database: str, statement: Prepared, params: Params) -> None:
    """Run the statement on a connection, cursor or session of the caller; nothing is committed.

    It may be SQLAlchemy's (async), aiosqlite's, asyncpg's or psycopg's; one of another library is
    called like the usual driver of `database` ("sqlite" or "postgresql").
    """
    library = type(cursor).__module__.partition(".")[0]
    if library == "sqlalchemy":
        await cursor.execute(statement.statement, dict(params))
        return
    dialect, arguments = _ARGUMENTS.get(library) or _ARGUMENTS[database]
    text = statement.compiled(dialect)
    await cursor.execute(text.text, *arguments(text, params))
