"""Run a prepared statement inside somebody else's transaction."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final

from sqlalchemy import Dialect, make_url

from hermes_orm.dialects.prepared import CompiledText, Params, Prepared

Arguments = Callable[[CompiledText, Params], tuple[Any, ...]]

# How `execute` takes its arguments: the usual driver's of a database, or a library's.
_DRIVERS: Final[dict[str, tuple[str, Arguments]]] = {
    "sqlite": ("sqlite+aiosqlite", lambda text, params: (text.values(params),)),
    "postgresql": ("postgresql+psycopg_async", lambda text, params: (text.named(params),)),
    "asyncpg": ("postgresql+asyncpg", lambda text, params: text.values(params)),
}


async def run_in(cursor: Any, database: str, statement: Prepared, params: Params) -> None:
    """Run the statement on a connection, cursor or session of the caller; nothing is committed.

    It may be SQLAlchemy's (async), aiosqlite's, asyncpg's or psycopg's; one of another library is
    called like the usual driver of `database` ("sqlite" or "postgresql").
    """
    if not callable(getattr(cursor, "execute", None)):
        raise TypeError(f"cursor must have an awaitable execute; {type(cursor).__name__} has none")
    library = type(cursor).__module__.partition(".")[0]
    if library == "sqlalchemy":
        await cursor.execute(statement.statement, dict(params))
        return
    driver, arguments = _DRIVERS.get(library) or _DRIVERS[database]
    text = statement.compiled(_dialect(driver))
    await cursor.execute(text.text, *arguments(text, params))


@cache
def _dialect(driver: str) -> Dialect:
    return make_url(f"{driver}://").get_dialect()()
