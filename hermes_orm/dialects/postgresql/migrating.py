"""Connections that change the schema of a PostgreSQL database."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from hermes_orm.config import load_settings
from hermes_orm.dialects.postgresql import opening
from hermes_orm.dialects.postgresql.options import engine_options
from hermes_orm.home import hermes_home
from hermes_orm.location import PostgresLocation

T = TypeVar("T")

# Polled, never awaited on the server: a waiter's snapshot deadlocks with CREATE INDEX CONCURRENTLY.
TRY_LOCK = text("SELECT pg_try_advisory_lock(:lock)")
UNLOCK = text("SELECT pg_advisory_unlock(:lock)")


async def migrate_with(
    location: PostgresLocation, action: Callable[[Connection], T], lock_wait: float
) -> T:
    """Run `action` on a direct connection that holds the migration lock as a session."""
    async with _connected(location) as connection:
        await connection.execution_options(isolation_level="AUTOCOMMIT")
        await _lock(connection, lock_wait)
        try:
            await opening.refuse_unknown(connection)
            await connection.rollback()  # nothing is open; the isolation level may change now
            await connection.execution_options(isolation_level="READ COMMITTED")
            return await connection.run_sync(action)
        finally:
            await connection.rollback()
            await connection.execute(UNLOCK, {"lock": opening.LOCK})


async def read_with(location: PostgresLocation, action: Callable[[Connection], T]) -> T:
    """Run `action` on a connection."""
    async with _connected(location) as connection:
        return await connection.run_sync(action)


@asynccontextmanager
async def _connected(location: PostgresLocation) -> AsyncIterator[AsyncConnection]:
    options = engine_options(location, load_settings(hermes_home()).postgres)
    engine = create_async_engine(options.url, **options.kwargs)
    try:
        async with engine.connect() as connection:
            yield connection
    finally:
        await engine.dispose()


async def _lock(connection: AsyncConnection, wait: float) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait
    while not await connection.scalar(TRY_LOCK, {"lock": opening.LOCK}):
        if loop.time() >= deadline:
            raise await opening.locked(connection, wait)
        await asyncio.sleep(opening.LOCK_POLL)
