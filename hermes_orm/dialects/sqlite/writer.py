"""The queue of write units: what waits while the writer's thread is busy shares its next commit."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Any, TypeVar, cast

from hermes_orm.dialects.base import Work
from hermes_orm.dialects.sqlite import upkeep
from hermes_orm.dialects.sqlite.driver import as_standard, lock_error
from hermes_orm.dialects.sqlite.group import Unit, hold, run_group
from hermes_orm.dialects.sqlite.repair import merge_search
from hermes_orm.dialects.sqlite.thread import ConnectionThread
from hermes_orm.dialects.sqlite.transaction import HeldConnection
from hermes_orm.dialects.waiting import pause
from hermes_orm.errors import StoreLockedError

T = TypeVar("T")

GROUP_LIMIT = 64
CHECKPOINT_EVERY = 50
MERGE_EVERY = 1000


EXPIRY_SECONDS = 0.1
"""How often the patience is looked at of those who wait for a held transaction."""


class Waiting(Unit):
    """A unit with its caller: where the answer goes and until when it may wait.

    One that `holds` has no work: it keeps the writer until `release`.
    """

    __slots__ = ("alone", "answer", "began", "ended_event", "holds", "patience")

    def __init__(
        self,
        work: Work[Any],
        loop: asyncio.AbstractEventLoop,
        patience: float,
        alone: bool,
        holds: bool = False,
    ) -> None:
        super().__init__(work)
        self.holds = holds
        self.answer: asyncio.Future[Any] = loop.create_future()
        self.ended_event: asyncio.Event | None = None
        self.began = loop.time()
        self.patience = patience
        self.alone = alone


class WriteQueue:
    """Hands waiting units to the writer's thread, at most 64 in one transaction, in queue order.

    Everything here runs on the event loop, as callbacks: there is no task to leak or to cancel.
    """

    def __init__(self, thread: ConnectionThread, held: HeldConnection, checkpoints: bool) -> None:
        self._thread = thread
        self._held = held
        self._checkpoints = checkpoints
        self._committed = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: deque[Waiting] = deque()
        self._running: Sequence[Waiting] = ()
        self._pausing = False
        self._expiry: asyncio.TimerHandle | None = None

    async def run(self, work: Work[T], *, patience: float, alone: bool) -> T:
        """Run `work` in a committed transaction and return its result.

        Cancelled while queued, it never runs; cancelled while running, it is rolled back before
        CancelledError leaves, unless its COMMIT had already begun.
        """
        unit = Waiting(work, self._bind(), patience, alone)
        return cast(T, await self._answered(unit))

    async def hold(self, patience: float) -> Waiting:
        """Wait for the writer and begin a transaction on it, which is the caller's to `release`."""
        unit = Waiting(lambda tx: None, self._bind(), patience, alone=True, holds=True)
        await self._answered(unit)
        return unit

    def release(self, unit: Waiting) -> None:
        """Go on with other units: the transaction of `hold` has ended."""
        if unit in self._running:  # not of a loop that is gone
            self._running = ()
            if self._expiry is not None:
                self._expiry.cancel()
            _answer(unit, None)
            self._count(1)
            self._start()

    @property
    def is_held(self) -> bool:
        """Whether the connection is somebody's own, from its BEGIN to its release."""
        return bool(self._running) and self._running[0].holds

    @property
    def is_idle(self) -> bool:
        """Whether nobody waits and nothing runs."""
        return not (self._running or self._waiting or self._pausing)

    async def _answered(self, unit: Waiting) -> Any:
        self._waiting.append(unit)
        self._start()
        try:
            return await unit.answer
        except asyncio.CancelledError:
            await self._withdraw(unit)
            raise

    def _bind(self) -> asyncio.AbstractEventLoop:
        """Follow the store to another event loop; what a finished loop left waiting is dropped."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            if self.is_held:
                self._thread.submit(self._held.rollback, loop, lambda result, error: None)
            self._loop, self._running, self._pausing = loop, (), False
            self._waiting.clear()
        return loop

    async def _withdraw(self, unit: Waiting) -> None:
        unit.cancelled = True
        if unit in self._waiting:
            self._waiting.remove(unit)
            return
        unit.ended_event = asyncio.Event()
        if unit.holds and not unit.answer.cancelled():  # it holds, and its caller never knew
            self._undo(unit)
        while unit in self._running:
            try:
                await unit.ended_event.wait()
            except asyncio.CancelledError:
                continue

    def _start(self) -> None:
        if self._running or self._pausing or not self._waiting:
            return
        group = [self._waiting.popleft()]
        while (
            self._waiting
            and len(group) < GROUP_LIMIT
            and not (group[0].alone or self._waiting[0].alone)
        ):
            group.append(self._waiting.popleft())
        self._running = group
        assert self._loop is not None

        def answered(committed: int | None, error: BaseException | None) -> None:
            self._finished(group, committed or 0, error)

        run = hold if group[0].holds else run_group
        self._thread.submit(lambda: run(self._held, group), self._loop, answered)

    def _finished(
        self, group: Sequence[Waiting], committed: int, error: BaseException | None
    ) -> None:
        if self._running is not group:  # answered after the store went to another loop
            return
        if group[0].state == "open":
            self._opened(group[0])
            return
        self._running = ()
        busy = [unit for unit in group if unit.state == "busy" and not unit.cancelled]
        for unit in group:
            if unit not in busy:
                _answer(unit, error)
        self._again(busy)
        self._count(committed)
        self._start()

    def _opened(self, unit: Waiting) -> None:
        if unit.answer.cancelled():
            self._undo(unit)
        else:
            _answer(unit, None)
            self._expire()

    def _undo(self, unit: Waiting) -> None:
        assert self._loop is not None
        rollback = self._held.rollback
        self._thread.submit(rollback, self._loop, lambda result, error: self.release(unit))

    def _expire(self) -> None:
        """Answer those whose patience is over while somebody holds the connection."""
        assert self._loop is not None
        now = self._loop.time()
        for unit in [unit for unit in self._waiting if now - unit.began >= unit.patience]:
            self._waiting.remove(unit)
            unit.ended("failed", error=StoreLockedError(unit.patience))
            _answer(unit, None)
        self._expiry = self._loop.call_later(EXPIRY_SECONDS, self._expire)

    def _again(self, busy: Sequence[Waiting]) -> None:
        """Put busy units back at the head of the queue; answer those whose patience is over."""
        if not busy:
            return
        assert self._loop is not None
        now = self._loop.time()
        left = []
        for unit in busy:
            if now - unit.began >= unit.patience:
                assert unit.error is not None
                unit.ended("failed", error=lock_error(unit.error, unit.patience))
                _answer(unit, None)
            else:
                left.append(unit)
        self._waiting.extendleft(reversed(left))
        if left:
            waited = now - left[0].began
            self._pausing = True
            shortest = min(unit.began + unit.patience - now for unit in left)
            self._loop.call_later(pause(waited, shortest), self._resume, self._loop)

    def _resume(self, loop: asyncio.AbstractEventLoop) -> None:
        if loop is self._loop:
            self._pausing = False
            self._start()

    def _count(self, committed: int) -> None:
        before, self._committed = self._committed, self._committed + committed
        if self._checkpoints and before // CHECKPOINT_EVERY != self._committed // CHECKPOINT_EVERY:
            assert self._loop is not None
            self._thread.submit(self._checkpoint, self._loop, lambda result, error: None)

        if before // MERGE_EVERY != self._committed // MERGE_EVERY:
            assert self._loop is not None
            merge = partial(merge_search, self._held)
            self._thread.submit(merge, self._loop, lambda result, error: None)

    def _checkpoint(self) -> None:
        upkeep.checkpoint(self._held.driver, "PASSIVE")


def _answer(unit: Waiting, group_error: BaseException | None) -> None:
    if unit.ended_event is not None:
        unit.ended_event.set()
    if unit.answer.done():
        return
    error = group_error or unit.error
    if error is not None:
        unit.answer.set_exception(as_standard(error))
    elif unit.state == "cancelled":
        unit.answer.cancel()
    else:
        unit.answer.set_result(unit.value)
