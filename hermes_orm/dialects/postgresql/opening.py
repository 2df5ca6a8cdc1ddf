"""Which schema a PostgreSQL database holds, and what opening does about it."""

from __future__ import annotations

import asyncio
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from hermes_orm.dialects.postgresql import ddl, errors
from hermes_orm.dialects.postgresql.options import EngineOptions
from hermes_orm.errors import SchemaError
from hermes_orm.models import AlembicVersion
from hermes_orm.models.meta import HEAD_REVISION, SCHEMA_VERSION

LOCK = 731948251
"""Advisory lock of every program that changes the schema of such a database."""
LOCK_POLL = 0.2
LOCK_WAIT = 300.0
UNDEFINED_TABLE = "42P01"

STAMPS = text("SELECT version_num FROM hermes_alembic_version")
TABLES = text(
    "SELECT table_name FROM information_schema.tables "
    "WHERE table_schema = current_schema() AND table_type = 'BASE TABLE'"
)
TRY_LOCK = text("SELECT pg_try_advisory_xact_lock(:lock)")
HOLDER = text(
    "SELECT l.pid, a.application_name FROM pg_locks l LEFT JOIN pg_stat_activity a USING (pid) "
    "WHERE l.locktype = 'advisory' AND l.granted AND l.classid = 0 "
    "AND l.objid = CAST(:lock AS bigint)"
)


async def ensure_schema(engine: AsyncEngine, options: EngineOptions, *, read_only: bool) -> None:
    """Create the schema in an empty database; refuse a database whose schema is not current.

    A current schema costs one read and takes no lock.
    """
    async with engine.connect() as connection:
        if read_only and not options.pooler:
            await _check_read_only(connection)
        if options.schema is not None:
            await _check_schema(connection, options.schema)
        if await _is_current(connection):
            return
        tables = await _tables(connection)
        if tables:
            raise await _refusal(connection, tables)
        if read_only:
            raise SchemaError(
                "a read-only store needs an initialized schema, and this one is empty: "
                "open it once without read_only=True, or run the migrations"
            )
    await _create(engine)


async def _is_current(connection: AsyncConnection) -> bool:
    try:
        stamps = [row[0] for row in await connection.execute(STAMPS)]
    except Exception as error:
        if errors.sqlstate_of(error) != UNDEFINED_TABLE:
            raise
        return False
    if stamps == [HEAD_REVISION]:
        return True
    if len(stamps) != 1:
        raise SchemaError(
            f"hermes_alembic_version must hold exactly one revision, found {len(stamps)}: "
            "nothing was changed"
        )
    raise SchemaError(
        f"the database has schema revision {stamps[0]}, this version of hermes_orm needs "
        f"{HEAD_REVISION}: a newer or an older hermes_orm wrote it; nothing was changed"
    )


async def _tables(connection: AsyncConnection) -> set[str]:
    return {row[0] for row in await connection.execute(TABLES)}


async def _refusal(connection: AsyncConnection, tables: set[str]) -> SchemaError:
    if "schema_version" not in tables:
        return SchemaError(
            "the schema holds tables without schema_version: it was not made by hermes_orm, and "
            "nothing was changed; use an empty database, or a schema of its own "
            "(database.postgres.schema)"
        )
    rows: list[Any] = list(
        await connection.execute(text("SELECT version FROM schema_version LIMIT 2"))
    )
    if len(rows) != 1:
        return SchemaError("schema_version must hold exactly one row: nothing was changed")
    if rows[0][0] > SCHEMA_VERSION:
        return SchemaError(
            f"the database has schema version {rows[0][0]}, newer than {SCHEMA_VERSION}: "
            "nothing was changed; update hermes_orm"
        )
    return SchemaError(
        f"the database has schema version {rows[0][0]} without the current schema revision: "
        "a migration is required, which this version of hermes_orm cannot do yet (unsupported); "
        "nothing was changed"
    )


async def _create(engine: AsyncEngine) -> None:
    """Create everything in one transaction that holds the advisory lock, which is polled."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    creating = engine.execution_options(isolation_level="READ COMMITTED")
    while True:
        async with creating.begin() as connection:
            if await connection.scalar(TRY_LOCK, {"lock": LOCK}):
                if not await _tables(connection):
                    await connection.run_sync(ddl.create_head)
                return
            if loop.time() - began >= LOCK_WAIT:
                raise await locked(connection, LOCK_WAIT)
        await asyncio.sleep(LOCK_POLL)


async def locked(connection: AsyncConnection, waited_seconds: float) -> SchemaError:
    """Return the error of a program that waited for the advisory lock in vain."""
    holder = (await connection.execute(HOLDER, {"lock": LOCK})).first()
    who = f"process {holder[0]} ({holder[1]})" if holder else "another process"
    return SchemaError(
        f"the schema is locked by {who} since {waited_seconds:.0f} s or longer: "
        "wait for its migration, or end it, then try again"
    )


async def refuse_unknown(connection: AsyncConnection) -> None:
    """Raise SchemaError for tables without a revision: no migration starts from them."""
    tables = await _tables(connection)
    if tables and AlembicVersion.__tablename__ not in tables:
        raise await _refusal(connection, tables)


async def _check_read_only(connection: AsyncConnection) -> None:
    if await connection.scalar(text("SHOW transaction_read_only")) != "on":
        raise SchemaError("the server did not make this read-only store's connection read-only")


async def _check_schema(connection: AsyncConnection, schema: str) -> None:
    found = await connection.scalar(text("SELECT current_schema()"))
    if found != schema:
        raise SchemaError(
            f"the current schema is {found!r}, not {schema!r}: create it (CREATE SCHEMA), "
            "or correct database.postgres.schema or the search_path of the role"
        )
