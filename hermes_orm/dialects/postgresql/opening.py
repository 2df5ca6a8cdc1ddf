"""Which schema a PostgreSQL database holds, and what opening does about it."""

from __future__ import annotations

import asyncio
import logging
import re
from typing import Any, Final

from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from hermes_orm.dialects.postgresql import ddl, errors, shape
from hermes_orm.dialects.postgresql.adoption import layout
from hermes_orm.dialects.postgresql.options import EngineOptions
from hermes_orm.errors import MigrationRequiredError, SchemaError
from hermes_orm.models.meta import HEAD_REVISION, SCHEMA_VERSION

logger = logging.getLogger("hermes_orm.postgresql")

LOCK = 731948251
"""Advisory lock of every program that changes the schema of such a database."""
LOCK_TIMEOUT = text("SELECT current_setting('lock_timeout')")
LOCK_POLL = 0.2
LOCK_WAIT = 300.0
UNDEFINED_TABLE = "42P01"
ADOPTABLE: Final = "layout 5"
ADOPTABLE_NAME: Final = "layout 5 of the existing PostgreSQL store"
OWN_REVISION: Final = re.compile(r"\d{4}[a-z]?")

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

    A current schema costs two reads and takes no lock. Raises MigrationRequiredError when a
    migration can make it current.
    """
    async with engine.connect() as connection:
        if read_only and not options.pooler:
            await _check_read_only(connection)
        if options.schema is not None:
            await check_schema(connection, options.schema)
        found = await connection.run_sync(recognise)
        if found == HEAD_REVISION:
            missing = await connection.run_sync(shape.missing)
            missing.check_columns()
            if not any(missing):
                return
            found = f"{found} without {', '.join(missing.indexes + missing.references)}"
    if found != "empty":
        raise _required(found, read_only=read_only, pooler=options.pooler)
    if read_only:
        raise SchemaError(
            "a read-only store needs an initialized schema, and this one is empty: "
            "open it once without read_only=True, or run the migrations"
        )
    await _create(engine)


def recognise(connection: Connection) -> str:
    """Return the revision, `empty`, or `layout 5` of the existing store; else raise SchemaError."""
    try:
        stamps = [row[0] for row in connection.execute(STAMPS)]
    except Exception as error:
        if errors.sqlstate_of(error) != UNDEFINED_TABLE:
            raise
        connection.rollback()
    else:
        return _known(stamps)
    tables = _tables(connection)
    if not tables:
        return "empty"
    if "schema_version" not in tables:
        raise SchemaError(
            "the schema holds tables without schema_version: it was not made by hermes_orm, and "
            "nothing was changed; use an empty database, or a schema of its own "
            "(database.postgres.schema)"
        )
    return _recognise_unstamped(connection, tables)


def _known(stamps: list[str]) -> str:
    """Return the revision that a database bears, unless this code does not know it."""
    if len(stamps) != 1:
        raise SchemaError(
            f"hermes_alembic_version must hold exactly one revision, found {len(stamps)}: "
            "nothing was changed"
        )
    (revision,) = stamps
    if not OWN_REVISION.fullmatch(revision) or revision > HEAD_REVISION:
        raise SchemaError(
            f"the database has schema revision {revision}, newer than or unknown to this version "
            f"of hermes_orm, which needs {HEAD_REVISION}: nothing was changed; update hermes_orm"
        )
    return revision


def _required(found: str, *, read_only: bool, pooler: bool) -> SchemaError:
    what = ADOPTABLE_NAME if found == ADOPTABLE else f"revision {found}"
    remedy = "run `hermes-orm db upgrade` (or `alembic upgrade head`) on a direct connection"
    text = (
        f"the database has {what}, not the current schema {HEAD_REVISION}: a migration is "
        f"required; nothing was changed; {remedy}"
    )
    if read_only or pooler:  # the migration lock is one of a server session
        return SchemaError(text)
    return MigrationRequiredError(text)


def _tables(connection: Connection) -> set[str]:
    return {row[0] for row in connection.execute(TABLES)}


def _recognise_unstamped(connection: Connection, tables: set[str]) -> str:
    rows: list[Any] = list(connection.execute(text("SELECT version FROM schema_version LIMIT 2")))
    if len(rows) != 1:
        raise SchemaError("schema_version must hold exactly one row: nothing was changed")
    version = rows[0][0]
    if version > SCHEMA_VERSION:
        raise SchemaError(
            f"the database has schema version {version}, newer than {SCHEMA_VERSION}: "
            "nothing was changed; update hermes_orm"
        )
    if version != layout.VERSION:
        raise SchemaError(
            f"the database has schema version {version} without a schema revision, which is "
            "unsupported: nothing was changed; migrate it with the program that wrote it"
        )
    marker = connection.scalar(layout.MARKER) if "state_meta" in tables else None
    if refusal := layout.layout_refusal(marker):
        raise refusal
    found = [(row[0], row[1]) for row in connection.execute(layout.COLUMNS)]
    if missing := layout.missing_columns(found):
        raise SchemaError(
            "the database of the existing PostgreSQL store has an incomplete table shape "
            f"({', '.join(missing[:5])} missing): nothing was changed; restore a backup"
        )
    return ADOPTABLE


async def _create(engine: AsyncEngine) -> None:
    """Create everything in one transaction that holds the advisory lock, which is polled."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    creating = engine.execution_options(isolation_level="READ COMMITTED")
    while True:
        async with creating.begin() as connection:
            if await connection.scalar(TRY_LOCK, {"lock": LOCK}):
                if not await connection.run_sync(_tables):
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


async def _check_read_only(connection: AsyncConnection) -> None:
    if await connection.scalar(text("SHOW transaction_read_only")) != "on":
        raise SchemaError("the server did not make this read-only store's connection read-only")


async def waits_forever(engine: AsyncEngine) -> bool:
    """Whether the role's `lock_timeout` is off; the store then sends one with each transaction."""
    async with engine.connect() as connection:
        if await connection.scalar(LOCK_TIMEOUT) != "0":
            return False
    logger.warning(
        "the role has no lock_timeout: behind a pooler each write sends its own, which costs two "
        "round trips; ALTER ROLE ... SET lock_timeout = '1s' saves them"
    )
    return True


async def check_schema(connection: AsyncConnection, schema: str) -> None:
    """Raise SchemaError unless the connection creates and finds tables in the schema."""
    found = await connection.scalar(text("SELECT current_schema()"))
    if found != schema:
        raise SchemaError(
            f"the current schema is {found or 'none'}, not {schema!r}: create it (CREATE SCHEMA), "
            "or correct database.postgres.schema or the search_path of the role"
        )
