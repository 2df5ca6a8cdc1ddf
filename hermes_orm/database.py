"""Units of work: where they run, how long they wait, and the life of a store's connections."""

from __future__ import annotations

import asyncio
import copy
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy.ext.asyncio import AsyncConnection

from hermes_orm import arguments, forking
from hermes_orm.background import BackgroundQueue
from hermes_orm.completion import to_completion
from hermes_orm.config import Settings, load_settings
from hermes_orm.dialects import (
    Dialect,
    HeldTransaction,
    Scope,
    Transaction,
    Transport,
    Work,
    make_transport,
    profiles,
)
from hermes_orm.dialects.base import ACTIVITY_PATIENCE, DEFAULT_PATIENCE, TRANSCRIPT_PATIENCE
from hermes_orm.dialects.transport import waits_for_itself
from hermes_orm.error_causes import clear_init_error, last_init_record, record_init_error
from hermes_orm.errors import MigrationRequiredError, ReadOnlyStoreError, StoreClosedError
from hermes_orm.home import hermes_home
from hermes_orm.location import Location, SqliteLocation
from hermes_orm.tombstones import Tombstones

T = TypeVar("T")

SETTLE_SECONDS = 5.0
FOLLOW_SECONDS = 2.0
"""A store that is opened for a moment does only what it was opened for."""

_files_of_parents: set[str] = set()
"""SQLite believes to hold the locks that the parent had here: what it writes might be lost."""


class Database:
    """One store's database: two ways in, `read` and `write`, connected on first use.

    Construction does no I/O. It fixes the Hermes home, so that path and settings belong together.
    """

    def __init__(self, location: Location, *, dialect: Dialect, read_only: bool = False) -> None:
        self.location = location
        self.read_only = read_only
        self.dialect = dialect
        self.token_queue = BackgroundQueue("hermes-orm token counts")
        self.tombstones = Tombstones()
        self.after_opening: Callable[[Database], Coroutine[Any, Any, None]] | None = None
        """What a writable store does by itself, soon after its first use, until it is closed."""
        self._following: asyncio.Task[None] | None = None
        self._home: Path = hermes_home()
        self._transport: Transport | None = None
        self._built: Transport | None = None
        self._held: set[HeldTransaction] = set()
        self._opening: tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None = None
        self._is_closed = False
        self._closing: asyncio.Task[None] | None = None
        self._is_inherited = False
        forking.watch(self)

    @cached_property
    def settings(self) -> Settings:
        """The settings of the store's home, as they are when they are used first."""
        return load_settings(self._home)

    @cached_property
    def own_profile(self) -> str | None:
        """The profile that owns the store; None when nothing tells, or several share it."""
        return profiles.own_profile(self.location, self.settings, self._home)

    async def read(
        self, work: Work[T], *, scope: Scope = "snapshot", patience: float = DEFAULT_PATIENCE
    ) -> T:
        """Run `work` against committed data and return its result.

        `statement`: the unit sends one SELECT. `snapshot`: all its SELECTs see the same moment.
        """
        transport = self._transport or await self._connect(patience)
        return await transport.read(work, scope=scope, patience=patience)

    async def write(
        self,
        work: Work[T],
        *,
        scope: Scope = "transaction",
        patience: float = DEFAULT_PATIENCE,
        alone: bool = False,
    ) -> T:
        """Run `work` in a transaction, commit, and return its result.

        While the database is busy the whole unit runs again, until `patience` seconds are over;
        it must not keep state between runs. An error or a cancellation leaves nothing behind.
        `alone`: never in one commit with other units.
        """
        if self.read_only:
            raise ReadOnlyStoreError.of("write")
        if self._held:
            self._check_not_held("a write")
        transport = self._transport or await self._connect(patience)
        return await transport.write(work, scope=scope, patience=patience, alone=alone)

    async def complete(self, work: Work[T], *, patience: float = DEFAULT_PATIENCE) -> T:
        """Do what `write` does, to its end: a cancellation is raised after the commit."""
        if self.in_transaction or self._is_held or self.read_only:
            return await self.write(work, patience=patience)
        return await to_completion(self.write(work, patience=patience))

    async def lend(self, call: Callable[[AsyncConnection], Awaitable[T]], *, commits: bool) -> T:
        """Await `call` with the connection of a transaction: a host's own SQL."""
        if commits and self.read_only:
            raise ReadOnlyStoreError.of("_write")
        transport = self._transport or await self._connect(DEFAULT_PATIENCE)
        return await transport.lend(call, commits=commits)

    @asynccontextmanager
    async def exclusively(self, purpose: str) -> AsyncIterator[bool]:
        """Hold the lock for a purpose over many units; yield False if another store holds it."""
        transport = self._transport or await self._connect(DEFAULT_PATIENCE)
        async with transport.exclusively(purpose) as is_held:
            yield is_held

    @asynccontextmanager
    async def transaction(self, patience: float = DEFAULT_PATIENCE) -> AsyncIterator[Database]:
        """Yield a database whose units commit together at the end of the block, or not at all.

        `patience` is for other writers at the begin; the block itself cannot be run again.
        """
        if self.read_only:
            raise ReadOnlyStoreError.of("transaction")
        seconds = arguments.waiting_time(patience, "patience")
        self._check_not_held("transaction()")
        await self.settle()
        transport = self._transport or await self._connect(seconds)
        held = await transport.begin(seconds)
        unit = copy.copy(self)
        unit._transport, unit._held = held, set()
        unit.tombstones = Tombstones(self.tombstones)
        forking.watch(unit)
        self._held.add(held)
        try:
            yield unit
        except BaseException:
            await held.end(commits=False)
            raise
        else:
            await held.end(commits=True)
            unit.tombstones.commit()
        finally:
            self._held.discard(held)

    @property
    def in_transaction(self) -> bool:
        """Whether this is the unit of a `transaction`, in which nothing can wait for others."""
        return isinstance(self._transport, HeldTransaction)

    def stand_alone(self, operation: str) -> None:
        """Raise RuntimeError within a `transaction`: `operation` waits, or commits in steps."""
        if self.in_transaction:
            raise RuntimeError(f"{operation} cannot be part of a transaction(): call it outside")

    def _check_not_held(self, call: str) -> None:
        if self._is_held:
            raise waits_for_itself(call)

    @property
    def _is_held(self) -> bool:
        """Whether a transaction of this very task is open."""
        task = asyncio.current_task()
        return any(held.owner is task for held in self._held)

    async def settle(self) -> None:
        """Let the usage that is queued go first: wait until it is stored, at most five seconds.

        Within a transaction nothing is waited for: it was stored before the begin.
        """
        if not (self.token_queue.is_idle or self.in_transaction or self._is_held):
            await self.token_queue.flush(SETTLE_SECONDS)

    async def _connect(self, patience: float) -> Transport:
        """Open the database once; concurrent first calls wait for the one that does it."""
        loop = asyncio.get_running_loop()
        if self._opening is None or self._opening[0] is not loop:
            self._opening = (loop, asyncio.Lock())
        async with self._opening[1]:
            self.check_open()
            if self._transport is not None:
                return self._transport
            known_failure = last_init_record()
            try:
                transport = self._built or make_transport(
                    self.location,
                    self.settings,
                    self.dialect,
                    read_only=self.read_only,
                    home=self._home,
                )
                self._built = transport  # settings that validated stay fixed
                await self._open(transport, patience)
            except Exception as error:
                if self._built is None:
                    vars(self).pop("settings", None)  # a file that is corrected counts
                record_init_error(error, self.location)
                raise
            if self._is_closed:
                await to_completion(transport.close())
                raise StoreClosedError()
            clear_init_error(known_failure)
            self._transport = transport
            if not self.read_only:
                loop.call_later(FOLLOW_SECONDS, self.follow)
            return transport

    async def _open(self, transport: Transport, patience: float) -> None:
        """Open a transport; bring a database with an older schema to the newest one first."""
        loop = asyncio.get_running_loop()
        try:
            await transport.open(loop.time() + patience)
        except MigrationRequiredError:
            if self.read_only:
                raise
            from hermes_orm import migrations  # most stores never need it

            hasty = self.settings.sessions.index_in_background
            await migrations.upgrade(self.location, settings=self.settings, hasty=hasty)
            await transport.open(loop.time() + patience)  # a migration takes what it takes

    def follow(self) -> None:
        """Begin what a store does by itself, unless that is under way."""
        is_under_way = self._following is not None and not self._following.done()
        if self.after_opening is not None and not (self._is_closed or is_under_way):
            self._following = asyncio.create_task(self.after_opening(self))

    def disown(self) -> None:
        """In a forked process: leave connections and queued usage to the parent."""
        if self._transport is None and not (self._opening and self._opening[1].locked()):
            return
        forking.abandon((self._transport, self._built, self._held))
        self._transport = self._built = self._opening = self._closing = self._following = None
        self._held = set()
        self._is_inherited = True
        if isinstance(self.location, SqliteLocation) and not self.location.is_memory:
            _files_of_parents.add(os.path.realpath(self.location.path))

    def check_open(self) -> None:
        """Raise RuntimeError after close() or a fork; nothing re-opens a store silently."""
        if self._is_inherited:
            raise RuntimeError(
                "this SessionDB was opened by the parent process, and a forked process can't use "
                "its connections: open stores after the fork"
            )
        if _files_of_parents and os.path.realpath(str(self.location)) in _files_of_parents:
            raise RuntimeError(
                f"{self.location} was open in the parent process at the fork, and SQLite can't "
                "lock it in this one: close the store before the fork, or spawn workers instead"
            )
        if self._is_closed:
            raise StoreClosedError()

    async def close(self) -> None:
        """Store what is queued and close every connection.

        Calls share one close; a cancelled one finishes it first.
        """
        self.stand_alone("close")
        self._check_not_held("close")
        if self._closing is None:
            self.token_queue.stop()
            self._is_closed = self.token_queue.is_idle
            self._closing = asyncio.create_task(self._close())
        await to_completion(self._closing)

    async def _close(self) -> None:
        following = self._following
        if following is not None and following.get_loop() is asyncio.get_running_loop():
            following.cancel()
            await asyncio.wait({following})
        # What is queued may wait for a block that is open.
        await asyncio.gather(self.token_queue.drain(), self._end_blocks())
        self._is_closed = True
        transport, self._transport = self._transport, None
        await self._end_blocks()
        if self._opening is not None and self._opening[0] is asyncio.get_running_loop():
            async with self._opening[1]:  # a connect that is under way sees the mark and gives up
                pass
        if transport is not None:
            await transport.close()

    async def _end_blocks(self) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.gather(*(held.close() for held in self._held if held.loop is loop))


__all__ = [
    "ACTIVITY_PATIENCE",
    "DEFAULT_PATIENCE",
    "TRANSCRIPT_PATIENCE",
    "Database",
    "Dialect",
    "Scope",
    "Transaction",
    "Work",
]
