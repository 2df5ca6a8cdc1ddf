"""How units of work reach a database: each in a transaction of its own, or several in one."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import NoReturn, TypeVar

from sqlalchemy.ext.asyncio import AsyncConnection

from hermes_orm.completion import to_completion
from hermes_orm.dialects.base import Dialect, Scope, Work
from hermes_orm.errors import StoreClosedError

T = TypeVar("T")

CLOSE_AFTER = 10.0
WARN_AFTER = 5.0
"""Seconds of rest after which a held transaction is reported: others may wait for it."""

logger = logging.getLogger("hermes_orm.transaction")


def waits_for_itself(call: str) -> RuntimeError:
    """Return the error of a call that only the end of its own task's transaction would end."""
    return RuntimeError(
        f"{call} of the task whose transaction() is open would wait for itself: "
        "call the operation on what the block yields"
    )


class Transport(ABC):
    """Connections of one store to its database; runs units of work on them."""

    dialect: Dialect

    async def translated(self, call: Awaitable[T]) -> T:
        """Await `call`; what callers see of its errors is up to the dialect."""
        try:
            return await call
        except Exception as error:
            translated = self.dialect.translate(error)
            if translated is error:
                raise
        raise translated  # out here it has no context: the driver's error holds values, passwords

    @abstractmethod
    async def open(self, deadline: float) -> None:
        """Connect and make sure that the schema is current; `deadline` in loop time."""

    @abstractmethod
    async def read(self, work: Work[T], *, scope: Scope, patience: float) -> T:
        """Run `work` against committed data."""

    @abstractmethod
    async def write(self, work: Work[T], *, scope: Scope, patience: float, alone: bool) -> T:
        """Run `work` and commit; again while the database is busy and patience lasts."""

    async def lend(self, call: Callable[[AsyncConnection], Awaitable[T]], *, commits: bool) -> T:
        """Await `call` with the connection of a transaction (`Dialect.lends_connections`)."""
        raise AssertionError("this dialect lends no connections")

    def exclusively(self, purpose: str) -> AbstractAsyncContextManager[bool]:
        """Hold the lock for a purpose over many units, unless another store holds it.

        Yields whether it was had.
        """
        raise AssertionError("a transaction() holds no other lock")

    @abstractmethod
    async def begin(self, patience: float) -> HeldTransaction:
        """Begin a transaction that stays open; `patience` is for other writers at its begin."""

    @abstractmethod
    async def snapshot(self) -> HeldTransaction:
        """Begin a reading transaction that stays open: all its units see the same moment."""

    @abstractmethod
    async def close(self) -> None:
        """Finish what runs, then close every connection."""


class HeldTransaction(Transport):
    """One open transaction as a transport: every unit joins it, whatever its scope, one by one.

    It belongs to the task that began it. Once a unit has failed or was cancelled, part of it may
    have been done: nothing but a rollback can follow.
    """

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.owner = asyncio.current_task()
        self.loop = asyncio.get_running_loop()
        self._one_by_one = asyncio.Lock()
        self._failure: BaseException | None = None
        self._ended_by: str | None = None
        self._has_ended = asyncio.Event()
        self._warning = self._watch()

    async def open(self, deadline: float) -> NoReturn:
        """Refuse: it is open."""
        raise AssertionError("a held transaction is opened by begin() of its transport")

    async def begin(self, patience: float) -> NoReturn:
        """Refuse: transactions are not nested."""
        raise RuntimeError("transaction() inside of a transaction(): use the unit that is open")

    async def snapshot(self) -> NoReturn:
        """Refuse: the transaction sees its own moments."""
        raise RuntimeError("a snapshot inside of a transaction(): take it from the store")

    async def close(self) -> None:
        """Wait ten seconds for the end of the block, then undo what is still open."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._has_ended.wait(), CLOSE_AFTER)
        await self.end(commits=False, ended_by="close")

    async def read(self, work: Work[T], *, scope: Scope, patience: float) -> T:
        """Run `work` in the transaction, whose changes it sees."""
        return await self._join(work)

    async def write(self, work: Work[T], *, scope: Scope, patience: float, alone: bool) -> T:
        """Run `work` in the transaction; a busy error is not waited out, nothing runs twice."""
        return await self._join(work)

    async def _join(self, work: Work[T]) -> T:
        async with self._one_by_one:
            self._check()
            self._warning.cancel()
            try:
                return await self.translated(self._run(work))
            except BaseException as error:
                self._failure = error
                raise
            finally:
                self._warning = self._watch()

    def _check(self) -> None:
        if self._ended_by == "close":
            raise StoreClosedError()
        if self._ended_by is not None:
            raise RuntimeError("this transaction() has ended: call the store, or begin another one")
        if self._failure is not None:
            raise RuntimeError(
                "an operation of this transaction() has failed or was cancelled: leave its block,"
                " nothing of it is stored"
            ) from self._failure

    def _watch(self) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(
            WARN_AFTER,
            logger.warning,
            "nothing has happened for %.0f s in a transaction(): it holds up other writers",
            WARN_AFTER,
        )

    async def end(self, *, commits: bool, ended_by: str = "block") -> None:
        """Commit or roll back what is open, and let go of the connection; never stops half-way.

        A commit raises RuntimeError, and rolls back, when a unit has failed.
        """
        await to_completion(self._end(commits, ended_by))

    async def _end(self, commits: bool, ended_by: str) -> None:
        async with self._one_by_one:
            if self._ended_by is None:
                try:
                    if commits:
                        self._check()
                        await self.translated(self._commit())
                finally:
                    self._warning.cancel()
                    self._ended_by, self._failure = ended_by, None
                    self._has_ended.set()
                    await self._release()
            elif commits:
                self._check()

    @abstractmethod
    async def _run(self, work: Work[T]) -> T:
        """Run `work` in the open transaction."""

    @abstractmethod
    async def _commit(self) -> None:
        """Commit; an error leaves the transaction to be rolled back."""

    @abstractmethod
    async def _release(self) -> None:
        """Roll back what was not committed, and give the connection back."""
