"""SQLite connections of one store: one writer, readers where WAL allows them, and their life."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sqlite3
import urllib.parse
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from hermes_orm.completion import InFlight, to_completion
from hermes_orm.config import SQLiteSettings
from hermes_orm.dialects.base import Dialect, Scope, Work
from hermes_orm.dialects.sqlite import (
    cjk,
    files,
    journal,
    opening,
    preflight,
    quarantine,
    repair,
    upkeep,
)
from hermes_orm.dialects.sqlite import driver as sqlite_driver
from hermes_orm.dialects.sqlite.adoption.lock import try_lock, unlock
from hermes_orm.dialects.sqlite.holding import HeldFileTransaction
from hermes_orm.dialects.sqlite.lane import Lane
from hermes_orm.dialects.sqlite.mending.mend import mend_once
from hermes_orm.dialects.sqlite.search_settings import SearchSettings
from hermes_orm.dialects.sqlite.thread import ConnectionThread
from hermes_orm.dialects.sqlite.transaction import HeldConnection
from hermes_orm.dialects.sqlite.writer import WriteQueue
from hermes_orm.dialects.transport import HeldTransaction, Transport, waits_for_itself
from hermes_orm.dialects.waiting import patiently
from hermes_orm.error_causes import is_malformed_db_error
from hermes_orm.errors import EventLoopError, StoreLockedError

logger = logging.getLogger("hermes_orm.sqlite")
T = TypeVar("T")

DRIVER_TIMEOUT = 1.0
IDLE_POLL = 0.005


class SQLiteTransport(Transport):
    """Opens the file, keeps its lanes, and sends units to them."""

    def __init__(
        self,
        path: str,
        settings: SQLiteSettings,
        dialect: Dialect,
        *,
        read_only: bool,
        home: Path,
        cjk_tokenizer: Path | None = None,
        has_trigrams: bool = True,
    ) -> None:
        self.dialect = dialect
        self._path = path
        self._home = home
        self._settings = settings
        self._read_only = read_only
        self._cjk = cjk_tokenizer
        self._has_trigrams = has_trigrams
        self._writer: Lane | None = None
        self._queue: WriteQueue | None = None
        self._readers: list[Lane] = []
        self._reader_limit = 0
        self._aside: Lane | None = None
        """A reader for those who come while a transaction holds the only connection."""
        self._snapshots: list[Lane] = []
        self._holder: asyncio.Task[Any] | None = None
        """Whose transaction it is, while the queue is held."""
        self._opening = False
        self._reopening = asyncio.Lock()
        self._was_reopened = False
        self._in_flight = InFlight()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def open(self, deadline: float) -> None:
        """Open the writer's connection; a malformed file is repaired once per process."""
        try:
            await self._open_patiently(deadline)
        except sqlite3.DatabaseError as error:
            is_fixed = self._read_only or self._path == ":memory:"
            if is_fixed or not is_malformed_db_error(error) or not await mend_once(self._path):
                raise
            await self._open_patiently(deadline)

    async def _open_patiently(self, deadline: float) -> None:
        loop = asyncio.get_running_loop()
        await patiently(
            lambda: self.translated(self._open_once()),
            patience=deadline - loop.time(),
            is_busy=self.dialect.is_busy,
            exhausted=sqlite_driver.lock_error,
        )

    @asynccontextmanager
    async def exclusively(self, purpose: str) -> AsyncIterator[bool]:
        """Hold a lock file beside the database; nobody else can use one in memory."""
        if self._path == ":memory:":
            yield True
            return
        name = Path(f"{self._path}.{purpose}.lock")
        descriptor = try_lock(name)
        try:
            yield descriptor is not None
        finally:
            if descriptor is not None:
                unlock(name, descriptor)

    async def _open_once(self) -> None:
        lane = await self._lane(self._connect)
        try:
            mode = await lane.thread.call(lambda: self._prepare(lane.held))
        except BaseException:
            await to_completion(lane.close())
            raise
        self._writer = lane
        wal = mode == "wal"
        self._queue = WriteQueue(lane.thread, lane.held, checkpoints=wal)
        self._reader_limit = self._settings.readers if wal and not self._read_only else 0

    async def _lane(self, connect: Callable[[files.Claim], Any]) -> Lane:
        claim = files.Claim(self._path)
        try:
            return Lane(await ConnectionThread.open(lambda: connect(claim)), self.dialect, claim)
        except BaseException:
            claim.release()
            raise

    def _connect(self, claim: files.Claim) -> Any:
        if self._path != ":memory:":
            self._path = os.path.abspath(self._path)  # whatever the working directory will be
            if not self._read_only:
                self._make_ready(Path(self._path))
            files.check_is_database(self._path)
        if self._read_only:
            return self._connect_read_only(claim)
        claim.take()
        return self._with_tokenizer(_connection(self._path))

    def _make_ready(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        preflight.make_writable(path, self._home, path.name)
        quarantine.replace_zeroed(path)
        with contextlib.suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
            return
        if path.stat().st_size == 0 and not files.is_live(path):
            logger.warning("%s existed with 0 bytes: a new database is created in it", path)

    def _connect_read_only(self, claim: files.Claim) -> Any:
        quoted = urllib.parse.quote(self._path)
        frozen = "&immutable=1" if self._read_only and files.is_frozen(self._path) else ""
        claim.take()
        return self._with_tokenizer(_connection(f"file:{quoted}?mode=ro{frozen}", uri=True))

    def _with_tokenizer(self, driver: Any) -> Any:
        if self._cjk is not None and not cjk.load(driver, self._cjk):
            self._cjk = None
        return driver

    def _prepare(self, held: HeldConnection) -> str:
        settings, driver = self._settings, held.driver
        if self._read_only:
            journal.apply_pragmas(driver, settings.pragmas, busy_timeout_ms=journal.BUSY_TIMEOUT_MS)
            opening.prepare_reading(held, self._path)
            return "read-only"
        opening.check_writable(driver, self._path, auto_migrate=settings.auto_migrate)
        mode = "memory"
        if self._path != ":memory:":
            label = os.path.basename(self._path)
            mode = journal.choose_journal(driver, configured=settings.journal_mode, label=label)
            held.place = files.Place(self._path, wal=mode == "wal")
        journal.apply_pragmas(
            driver,
            settings.pragmas,
            busy_timeout_ms=journal.BUSY_TIMEOUT_MS,
            synchronous="NORMAL" if settings.synchronous == "normal" else None,
        )
        opening.ensure_schema(held)
        is_deferred = settings.search_indexing == "deferred"
        wanted = SearchSettings(self._cjk is not None, self._has_trigrams, is_deferred)
        repair.open_search(held, wanted)
        return mode

    async def read(self, work: Work[T], *, scope: Scope, patience: float) -> T:
        """Run `work` on a reader, or through the writer's thread where there is none."""
        self._claim_loop()
        with self._in_flight:
            return await self._twice(
                lambda: patiently(
                    lambda: self.translated(self._read(work, scope)),
                    patience=patience,
                    is_busy=self.dialect.is_busy,
                    exhausted=sqlite_driver.lock_error,
                )
            )

    async def _read(self, work: Work[T], scope: Scope) -> T:
        assert self._writer is not None, "open() comes first"
        assert self._queue is not None
        lane = await self._reader() or (self._aside if self._queue.is_held else None)
        if lane is None and self._queue.is_held:  # in memory: nobody else can look
            if self._holder is asyncio.current_task():
                raise waits_for_itself("a read of the only connection")
            raise StoreLockedError(0)
        return await (lane or self._writer).read(work, scope, guarded=lane is None)

    async def _reader(self) -> Lane | None:
        """Return the least busy reader; while all are busy, up to the limit, another one."""
        best = min(self._readers, key=lambda lane: lane.pending, default=None)
        is_idle = best is not None and best.pending == 0
        if is_idle or self._opening or len(self._readers) >= self._reader_limit:
            return best
        self._opening = True
        try:
            best = await self._open_reader()
            self._readers.append(best)
        except sqlite_driver.module().Error as error:
            logger.info("no further reading connection: %s", error)
            self._reader_limit = len(self._readers)
        finally:
            self._opening = False
        return best

    async def _open_reader(self) -> Lane:
        lane = await self._lane(self._connect_read_only)
        try:
            await lane.thread.call(
                lambda: journal.apply_pragmas(
                    lane.held.driver,
                    self._settings.pragmas,
                    busy_timeout_ms=journal.READER_BUSY_TIMEOUT_MS,
                )
            )
        except BaseException:
            await to_completion(lane.close())
            raise
        return lane

    async def write(self, work: Work[T], *, scope: Scope, patience: float, alone: bool) -> T:
        """Run `work` in a transaction that waiting units may share."""
        self._claim_loop()
        with self._in_flight:
            return await self._twice(lambda: self._write(work, patience, alone))

    async def _write(self, work: Work[T], patience: float, alone: bool) -> T:
        assert self._queue is not None, "open() comes first"
        return await self._queue.run(work, patience=patience, alone=alone)

    async def _twice(self, call: Callable[[], Awaitable[T]]) -> T:
        """Call once more on new connections when SQLite saw no database in the file."""
        writer = self._writer
        try:
            return await call()
        except sqlite3.DatabaseError as error:
            if "file is not a database" not in str(error) or not await self._reopened(writer):
                if writer is not None and writer.held.place is not None:
                    writer.held.place.check()  # it may tell more
                raise
        return await call()

    async def _reopened(self, failed: Lane | None) -> bool:
        """Replace the connections once in the life of a store; whether they are new now."""
        async with self._reopening:
            if self._writer is not failed:
                return True
            queue = self._queue
            assert queue is not None
            if self._was_reopened or queue.is_held or self._path == ":memory:":
                return False
            self._was_reopened = True
            try:
                await self._open_once()
            except sqlite_driver.errors():
                return False
            former = [*filter(None, (failed, self._aside)), *self._readers]
            self._readers, self._aside = [], None
            await to_completion(_retire(queue, former))
            return True

    async def begin(self, patience: float) -> HeldTransaction:
        """Take the writer for one transaction; other writes wait for its end, reads do not."""
        self._claim_loop()
        assert self._writer is not None, "open() comes first"
        assert self._queue is not None
        if not self._readers and self._aside is None and self._path != ":memory:":
            await self._open_aside()
        queue, writer = self._queue, self._writer
        unit = await queue.hold(patience)
        self._holder = asyncio.current_task()
        return HeldFileTransaction(
            self.dialect, writer.thread, writer.held, patience, lambda: queue.release(unit)
        )

    async def snapshot(self) -> HeldTransaction:
        """Open a connection for one reading transaction; without WAL no COMMIT ends before it."""
        self._claim_loop()
        lane = await self._open_reader()
        self._snapshots.append(lane)
        await lane.thread.call(lambda: lane.held.begin("BEGIN"))
        return HeldFileTransaction(self.dialect, lane.thread, lane.held, 0, lambda: None)

    async def _open_aside(self) -> None:
        with contextlib.suppress(sqlite_driver.module().Error):
            lane = await self._open_reader()
            if self._aside is None:
                self._aside = lane
            else:  # somebody was faster
                await to_completion(lane.close())

    def _claim_loop(self) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is loop:
            return
        if self._loop is not None and self._loop.is_running():
            raise EventLoopError()
        self._loop, self._in_flight = loop, InFlight()  # whoever waited has gone with its loop
        self._reopening = asyncio.Lock()

    async def close(self) -> None:
        """Finish what is queued, close readers, truncate the WAL, close the writer."""
        if self._writer is None:
            return
        if self._loop is asyncio.get_running_loop():
            await self._in_flight.ended()
        for lane in (*self._readers, *self._snapshots, *filter(None, (self._aside,))):
            await lane.close()
        self._readers.clear()
        if not self._read_only:
            held = self._writer.held
            await self._writer.thread.call(lambda: repair.close_search(held))
            await self._writer.thread.call(lambda: upkeep.checkpoint(held.driver, "TRUNCATE"))
        await self._writer.close()
        self._writer = self._queue = None


async def _retire(queue: WriteQueue, lanes: list[Lane]) -> None:
    """Close connections after everybody who waited for them has been answered."""
    while not queue.is_idle:  # noqa: ASYNC110  (happens once in the life of a store at most)
        await asyncio.sleep(IDLE_POLL)
    for lane in lanes:
        await lane.close()


def _connection(name: str, *, uri: bool = False) -> Any:
    return sqlite_driver.module().connect(
        name,
        timeout=DRIVER_TIMEOUT,
        isolation_level=None,  # BEGIN is sent by us
        check_same_thread=False,
        cached_statements=256,
        uri=uri,
    )
