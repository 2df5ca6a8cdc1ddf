"""PostgreSQL connections of one store: a pool, and units of work in the greenlet bridge."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any, TypeVar

from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from hermes_orm.completion import InFlight, cancelled_once, to_completion
from hermes_orm.dialects.base import DEFAULT_PATIENCE, Dialect, Scope, Work
from hermes_orm.dialects.postgresql import errors, lines, opening
from hermes_orm.dialects.postgresql.holding import HeldServerTransaction
from hermes_orm.dialects.postgresql.options import EngineOptions
from hermes_orm.dialects.postgresql.permits import Permits
from hermes_orm.dialects.postgresql.pool import clean_up, new_engine
from hermes_orm.dialects.postgresql.transaction import (
    READ_COMMITTED,
    SNAPSHOT,
    AsyncpgTransaction,
    PostgreSQLTransaction,
    PsycopgTransaction,
)
from hermes_orm.dialects.transport import Transport
from hermes_orm.dialects.waiting import patiently
from hermes_orm.errors import EventLoopError, StoreClosedError

T = TypeVar("T")

BEGIN: dict[Scope, str] = {"snapshot": SNAPSHOT, "transaction": READ_COMMITTED}
CLOSE_WITHIN = 10.0
CANCEL_WITHIN = 5.0
LOCK_TIMEOUT = 1.0
"""Seconds that the server waits for a lock (`options.py`), unless patience ends before."""

TRY_LOCK = text(
    "SELECT pg_try_advisory_lock(hashtextextended(current_schema() || ' ' || :purpose, 0))"
)


class PostgreSQLTransport(Transport):
    """Creates the engine on first use, and runs each unit on one pooled connection."""

    def __init__(self, options: EngineOptions, dialect: Dialect, *, read_only: bool) -> None:
        self.dialect = dialect
        self._options = options
        self._read_only = read_only
        self._guards = read_only and options.pooler
        """Whether each read refuses writes: nothing was sent at start-up that would."""
        self._engine: AsyncEngine | None = None
        self._permits: Permits | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._in_flight = InFlight()
        self._is_stopping = False
        self._waits_forever = False
        """Whether nobody told the server how long to wait for a lock: each transaction does."""
        self._connections: set[Any] = set()
        self._transaction = (
            AsyncpgTransaction if options.driver == "asyncpg" else PsycopgTransaction
        )

    async def open(self, deadline: float) -> None:
        """Create the engine and make sure that the schema is current."""
        engine = new_engine(self._options, self._connections)
        try:
            await self.translated(
                opening.ensure_schema(engine, self._options, read_only=self._read_only)
            )
            if self._options.pooler and not self._read_only:
                self._waits_forever = await self.translated(opening.waits_forever(engine))
        except BaseException:
            await to_completion(engine.dispose())
            raise
        self._engine = engine
        pool = self._options.kwargs
        self._permits = Permits(pool["pool_size"], pool["max_overflow"], pool["pool_timeout"])
        self._loop = asyncio.get_running_loop()

    async def read(self, work: Work[T], *, scope: Scope, patience: float) -> T:
        """Run `work` on committed data: one statement, or a snapshot."""
        begin = BEGIN.get(scope)
        if begin is None and self._guards:
            begin = BEGIN["snapshot"]
        return await self._patiently(work, begin, patience, replaceable=True)

    async def write(self, work: Work[T], *, scope: Scope, patience: float, alone: bool) -> T:
        """Run `work` and commit: one statement in AUTOCOMMIT, or a transaction."""
        is_bound = self._waits_forever or patience < LOCK_TIMEOUT
        begin = BEGIN.get(scope)
        if is_bound and scope != "maintenance":
            begin = BEGIN["transaction"]
        return await self._patiently(work, begin, patience, replaceable=begin is not None)

    async def _patiently(
        self, work: Work[T], begin: str | None, patience: float, *, replaceable: bool
    ) -> T:
        self._check_loop()
        return await patiently(
            lambda: self.translated(self._once(work, begin, patience, replaceable)),
            patience=patience,
            is_busy=self.dialect.is_busy,
            exhausted=errors.lock_error,
        )

    async def _once(
        self, work: Work[T], begin: str | None, patience: float, replaceable: bool
    ) -> T:
        assert self._permits is not None
        await self._permits.acquire()
        try:
            with self._in_flight:
                return await self._on_connection(work, begin, patience, replaceable)
        finally:
            self._permits.release()

    async def _on_connection(
        self, work: Work[T], begin: str | None, patience: float, replaceable: bool
    ) -> T:
        if self._engine is None:
            raise StoreClosedError()
        connection = await self._engine.connect()
        unit = _Unit(self, work, begin, patience)
        try:
            result: T = await self.run(connection, unit.run)
        except BaseException as error:
            in_transaction = begin is not None or unit.in_snapshot
            lost = await to_completion(clean_up(connection, in_transaction))
            if self._is_stopping and not isinstance(error, asyncio.CancelledError):
                raise StoreClosedError() from None
            if lost and replaceable and not unit.sent and isinstance(error, Exception):
                return await self._on_connection(work, begin, patience, replaceable=False)
            if lost and isinstance(error, Exception):
                raise errors.translate(error, lost=True) from None
            raise
        await connection.close()
        return result

    async def lend(self, call: Callable[[AsyncConnection], Awaitable[T]], *, commits: bool) -> T:
        """Await `call` with a connection inside of a transaction; commit, or undo what it did."""
        held = await (self.snapshot() if self._guards else self.begin(DEFAULT_PATIENCE))
        try:
            result = await call(held.connection)
        except BaseException:
            await held.end(commits=False)
            raise
        await held.end(commits=commits)
        return result

    @asynccontextmanager
    async def exclusively(self, purpose: str) -> AsyncIterator[bool]:
        """Hold an advisory lock of the store's schema on a connection of its own.

        Raises RuntimeError behind a transaction pooler, where it would be another's in a moment.
        """
        if self._options.pooler:
            raise RuntimeError(
                f"the lock {purpose!r} needs a direct connection: open a store on the server's own "
                "address, with database.postgres.pooler: false"
            )
        engine = new_engine(self._options, set())
        try:
            async with aclosing(await self.translated(engine.connect())) as connection:
                held = await self.translated(connection.scalar(TRY_LOCK, {"purpose": purpose}))
                yield bool(held)  # it ends with the connection
        finally:
            await to_completion(engine.dispose())

    async def begin(self, patience: float) -> HeldServerTransaction:
        """Take a connection for one transaction; other units run on others."""
        self._check_loop()
        return await self.translated(self._begun(READ_COMMITTED))

    async def snapshot(self) -> HeldServerTransaction:
        """Take a connection for one reading transaction: all its units see the same moment."""
        self._check_loop()
        return await self.translated(self._begun(SNAPSHOT))

    async def _begun(self, begin: str) -> HeldServerTransaction:
        assert self._permits is not None
        await self._permits.acquire()
        try:
            with self._in_flight:
                if self._engine is None:
                    raise StoreClosedError()
                connection = await self._engine.connect()
        except BaseException:
            self._permits.release()
            raise
        held = HeldServerTransaction(self, connection, self._permits.release)
        try:
            await held.start(begin)
        except BaseException:
            await held.end(commits=False)
            raise
        return held

    def _check_loop(self) -> None:
        if asyncio.get_running_loop() is not self._loop:
            raise EventLoopError()

    async def run(self, connection: AsyncConnection, unit: Callable[[Connection], T]) -> T:
        """Run `unit` in the greenlet bridge; a cancellation ends its statement."""
        running = connection.run_sync(unit)
        if self._options.driver == "psycopg":  # else it gives up its wait for a cancelled one
            running = cancelled_once(running)
        return await running

    def begin_in(self, tx: PostgreSQLTransaction, begin: str, patience: float) -> None:
        """Send `begin`, and how long to wait for locks where that is not what the server does."""
        tx.command(begin)
        if patience < LOCK_TIMEOUT or (self._waits_forever and begin == READ_COMMITTED):
            milliseconds = max(1, int(min(patience, LOCK_TIMEOUT) * 1000))
            tx.command(f"SET LOCAL lock_timeout = {milliseconds}")

    def new_transaction(self, connection: Connection, one_statement: bool) -> PostgreSQLTransaction:
        """Return a unit's view of a checked-out connection."""
        return self._transaction(
            self.dialect,
            connection,
            one_statement=one_statement,
            is_direct=not self._options.pooler,
        )

    async def close(self) -> None:
        """Wait up to 10 s for running units, stop the rest, and close every connection."""
        engine, self._engine = self._engine, None
        if engine is None:
            return
        if asyncio.get_running_loop() is not self._loop:
            self._abandon()
            await engine.dispose(close=False)
            return
        if not await self._in_flight.ended(CLOSE_WITHIN):
            await self._stop_late_units()
        await engine.dispose()

    async def _stop_late_units(self) -> None:
        """End the statements of units that a close has waited for long enough."""
        self._is_stopping = True
        drivers = [connection.driver_connection for connection in self._connections]
        if self._options.driver == "psycopg":
            asked = (driver.cancel_safe(timeout=CANCEL_WITHIN) for driver in drivers)
            await asyncio.gather(*asked, return_exceptions=True)
            if await self._in_flight.ended(CANCEL_WITHIN):
                return
        for driver in drivers:
            lines.hang_up(driver)
        await self._in_flight.ended(CLOSE_WITHIN)

    def _abandon(self) -> None:
        """Drop connections of a loop that is gone: nothing can be sent on them any more."""
        for connection in self._connections:
            driver: Any = connection.driver_connection
            with contextlib.suppress(RuntimeError):  # "Event loop is closed"
                driver.terminate() if self._options.driver == "asyncpg" else driver.pgconn.finish()
        self._connections.clear()


class _Unit:
    """A unit with its BEGIN and COMMIT, as one function for the greenlet bridge."""

    def __init__(
        self, transport: PostgreSQLTransport, work: Work[Any], begin: str | None, patience: float
    ) -> None:
        self._transport = transport
        self._work = work
        self._begin = begin
        self._patience = patience
        self.sent = self.in_snapshot = False

    def run(self, connection: Connection) -> Any:
        tx = self._transport.new_transaction(connection, self._begin is None)
        try:
            if self._begin is None:
                return self._work(tx)
            self._transport.begin_in(tx, self._begin, self._patience)
            result = self._work(tx)
            tx.commit()
            return result
        finally:
            self.sent, self.in_snapshot = tx.sent, tx.in_snapshot
            tx.end()
