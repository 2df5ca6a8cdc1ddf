"""Connections that change the schema of a PostgreSQL database."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncConnection

from hermes_orm.dialects.adoption import Adoption, AdoptionReport
from hermes_orm.dialects.postgresql import errors, opening, shape
from hermes_orm.dialects.postgresql.adoption import adopt
from hermes_orm.dialects.postgresql.options import engine_options
from hermes_orm.dialects.postgresql.pool import create_engine
from hermes_orm.errors import SchemaError
from hermes_orm.location import PostgresLocation
from hermes_orm.models.meta import HEAD_REVISION, SCHEMA_VERSION

T = TypeVar("T")

STARTUP = {"lock_timeout": "5000", "application_name": "hermes_orm migration"}
"""A table that is in use makes others queue behind the migration: it gives up after 5 s."""
LOCK_NOT_AVAILABLE = "55P03"

# Polled, never awaited on the server: a waiter's snapshot deadlocks with CREATE INDEX CONCURRENTLY.
TRY_LOCK = text("SELECT pg_try_advisory_lock(:lock)")
USERS = text(
    "SELECT DISTINCT l.pid, a.application_name FROM pg_locks l "
    "JOIN pg_stat_activity a USING (pid) JOIN pg_class c ON c.oid = l.relation "
    "WHERE l.granted AND c.relnamespace = current_schema()::regnamespace "
    "AND c.relkind = 'r' AND l.pid <> pg_backend_pid() ORDER BY 1"
)
UNLOCK = text("SELECT pg_advisory_unlock(:lock)")


async def migrate_with(
    location: PostgresLocation,
    action: Callable[[Connection], T],
    lock_wait: float,
    section: object,
    adoption: Adoption | None,
) -> T:
    """Run `action` on a direct connection that holds the migration lock as a session."""
    async with _connected(location, section) as connection:
        await connection.execution_options(isolation_level="AUTOCOMMIT")
        await _lock(connection, lock_wait)
        try:
            report = await _adopted(connection, adoption)
            result = await connection.run_sync(action)
            await connection.commit()
        except Exception as error:
            if errors.sqlstate_of(error) != LOCK_NOT_AVAILABLE:
                raise
            await connection.rollback()
            raise await _table_in_use(connection) from None
        finally:
            if not connection.invalidated:  # a lost connection holds no lock any more
                await connection.rollback()
                await connection.execute(UNLOCK, {"lock": opening.LOCK})
                await connection.commit()
    if adoption is not None:
        adoption.report(report)
    return result


async def _adopted(connection: AsyncConnection, adoption: Adoption | None) -> AdoptionReport:
    """Adopt a database of the existing store in a transaction; report what is there else."""
    found = await connection.run_sync(opening.recognise)
    await connection.rollback()  # nothing is open; the isolation level may change now
    await connection.execution_options(isolation_level="READ COMMITTED")
    if found == HEAD_REVISION and adoption is not None and adoption.covers_stamped:
        holes = await connection.run_sync(_completed, adoption)
        await connection.commit()
        return AdoptionReport(SCHEMA_VERSION, SCHEMA_VERSION, found, holes)
    if found != opening.ADOPTABLE:
        version = int(found[:4]) if found != "empty" else 0
        return AdoptionReport(version=version, shape=version, start=found)
    if adoption is None:
        raise SchemaError(
            f"the database has {opening.ADOPTABLE_NAME} and no revision yet: nothing was changed; "
            "run `hermes-orm db upgrade` (or `alembic upgrade head`) first"
        )
    report = await connection.run_sync(adopt, adoption.replay)
    await connection.commit()
    return report


def _completed(connection: Connection, adoption: Adoption) -> tuple[str, ...]:
    """Add missing indexes and references to a database of the newest revision."""
    shape.missing(connection).check_columns()
    return shape.complete(connection, lambda: adoption.replay(connection, HEAD_REVISION))


async def _table_in_use(connection: AsyncConnection) -> SchemaError:
    """Return the error of a migration that others kept from a table until `lock_timeout`."""
    users = [f"{row[0]} ({row[1]})" for row in await connection.execute(USERS)]
    who = f"process {', '.join(users)}" if users else "another process"
    return SchemaError(
        f"a table that the migration changes is locked by {who}: what was not finished is rolled "
        "back; end its transaction, or wait longer for it (?options=-clock_timeout=60000 in the "
        "URL, in ms), and try again"
    )


async def read_with(
    location: PostgresLocation, action: Callable[[Connection], T], section: object
) -> T:
    """Run `action` on a connection."""
    async with _connected(location, section) as connection:
        return await connection.run_sync(action)


@asynccontextmanager
async def _connected(location: PostgresLocation, section: object) -> AsyncIterator[AsyncConnection]:
    """Connect as a migration. A pooler refuses the parameters that are sent at start-up."""
    if isinstance(section, dict):
        section = {**section, "pooler": False}
    options = engine_options(location, section, startup=STARTUP)
    engine = create_engine(options)
    try:
        async with engine.connect() as connection:
            if options.schema is not None:
                await opening.check_schema(connection, options.schema)
                await connection.rollback()  # whoever asked for it chooses how it begins
            yield connection
    except Exception as error:
        translated = errors.translate(error)  # without DETAIL, which shows stored values
        if translated is error:
            raise
        raise translated from None
    finally:
        await engine.dispose()


async def _lock(connection: AsyncConnection, wait: float) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait
    while not await connection.scalar(TRY_LOCK, {"lock": opening.LOCK}):
        if loop.time() >= deadline:
            raise await opening.locked(connection, wait)
        await asyncio.sleep(opening.LOCK_POLL)
