"""The engine of a store: its pool, and how a connection that died while idle is replaced."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from sqlalchemy import event, exc
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from hermes_orm.dialects.postgresql import errors, lines
from hermes_orm.dialects.postgresql.options import STATEMENT_CACHE_SIZE, EngineOptions
from hermes_orm.errors import SchemaError

ROLLBACK_WITHIN = 10.0
IDLE_PING_AFTER = 1.0
"""Seconds of rest after which a connection is asked whether it is alive: that is a round trip."""
PING_WITHIN = 5.0
TYPES_OF_BATCHES = "SELECT '{}'::int4[], '{}'::int8[], '{}'::float8[]"


def create_engine(options: EngineOptions, **arguments: Any) -> AsyncEngine:
    """Return an engine whose failures to connect have one class with either driver.

    Raises ImportError, naming the extra, when the driver is missing.
    """
    try:
        engine = create_async_engine(options.url, **options.kwargs, **arguments)
    except ModuleNotFoundError as error:
        extra = "postgres" if options.driver == "asyncpg" else "psycopg"
        raise ImportError(
            f"postgresql+{options.driver}:// needs the package {options.driver}: "
            f"pip install 'hermes-orm[{extra}]'"
        ) from error

    @event.listens_for(engine.sync_engine, "do_connect")
    def connect(dialect: Any, record: Any, names: Any, values: Any) -> Any:
        _check_loop_for(options.driver)
        try:
            connection = dialect.connect(*names, **values)
        except Exception as error:  # noqa: BLE001  (the drivers raise classes of many families)
            failure = errors.not_connected(error, options)
        else:
            if _encoding(connection.driver_connection) != "SQL_ASCII":
                return connection
            connection.close()
            failure = SchemaError(
                "the database has the encoding SQL_ASCII, which keeps bytes instead of text: "
                "nothing was changed; create one with ENCODING 'UTF8' TEMPLATE template0"
            )
        raise failure  # out here it has no context: the driver's error may hold the password

    return engine


def _check_loop_for(driver: str) -> None:
    """Raise RuntimeError on an event loop that psycopg cannot use: the default one of Windows."""
    proactor = getattr(asyncio, "ProactorEventLoop", None)
    if driver == "psycopg" and proactor and isinstance(asyncio.get_running_loop(), proactor):
        raise RuntimeError(
            "psycopg cannot use the default event loop of Windows, ProactorEventLoop: use "
            "postgresql+asyncpg://, or a selector event loop, as in "
            "`asyncio.Runner(loop_factory=asyncio.SelectorEventLoop).run(main())`"
        )


def _encoding(driver: Any) -> Any:
    """Return the database's encoding, which the server tells whoever connects."""
    if hasattr(driver, "get_settings"):  # asyncpg
        return getattr(driver.get_settings(), "server_encoding", None)
    return driver.info.parameter_status("server_encoding")


def new_engine(options: EngineOptions, connections: set[Any]) -> AsyncEngine:
    """Return an engine in AUTOCOMMIT; `connections` always holds the open ones."""
    engine = create_engine(options, isolation_level="AUTOCOMMIT")

    @event.listens_for(engine.sync_engine, "connect")
    def opened(connection: Any, record: Any) -> None:
        connections.add(connection)
        driver = connection.driver_connection
        lines.watch(driver)
        if options.driver == "psycopg" and not options.pooler:
            driver.prepared_max = STATEMENT_CACHE_SIZE
        if options.driver == "asyncpg" and options.pooler:
            connection.run_async(_learn_types)

    @event.listens_for(engine.sync_engine, "close")
    def closed(connection: Any, record: Any) -> None:
        connections.discard(connection)

    if options.ping:
        _ping_after_a_rest(engine)
    return engine


async def _learn_types(driver: Any) -> None:
    """Have asyncpg ask for the types of batches while a transaction holds one server.

    It turns JIT off meanwhile, and on again: later on perhaps on another server.
    """
    async with driver.transaction():
        await driver.fetch(TYPES_OF_BATCHES)


def _ping_after_a_rest(engine: AsyncEngine) -> None:
    @event.listens_for(engine.sync_engine, "checkin")
    def rests(connection: Any, record: Any) -> None:
        record.info["rests_since"] = time.monotonic()

    @event.listens_for(engine.sync_engine, "checkout")
    def is_needed(connection: Any, record: Any, proxy: Any) -> None:
        driver = connection.driver_connection
        if lines.is_closed(driver) or _has_ended(driver):
            raise exc.DisconnectionError("the server closed the connection")
        now = time.monotonic()
        if now - record.info.get("rests_since", now) <= IDLE_PING_AFTER:
            return
        try:
            with lines.answered_within(driver, PING_WITHIN):
                connection.run_async(lambda driver: driver.execute(""))
        except Exception as error:
            # One that is silent is as good as all: each of them would take as long.
            raise exc.InvalidatePoolError("the connection does not answer") from error


def _has_ended(driver: Any) -> bool:
    """Whether the server has closed an idle connection, which psycopg notices by reading only."""
    if not hasattr(driver, "pgconn"):
        return False
    try:
        driver.pgconn.consume_input()  # the server's last words, if there are any
        driver.pgconn.consume_input()
    except Exception:  # noqa: BLE001  (psycopg is not imported here)
        return True
    return False


async def clean_up(connection: AsyncConnection, in_transaction: bool) -> bool:
    """Return the connection of a failed unit to the pool; True when it was lost and thrown away.

    Drivers do not wait for the end of a statement that they gave up, and asyncpg leaves one open
    whose values it could not send, which keeps a pooler's server: another statement ends either.
    """
    try:
        driver = (await connection.get_raw_connection()).driver_connection
        if driver is None or lines.is_closed(driver):
            raise exc.InvalidRequestError("the connection is closed")
        with lines.answered_within(driver, ROLLBACK_WITHIN):
            await driver.execute("ROLLBACK" if in_transaction else "")
    except Exception:  # noqa: BLE001  (whatever is wrong with it, it must not be used again)
        await connection.invalidate()
        await connection.close()
        return True
    await connection.close()
    return False
