"""A transaction that keeps the writer's connection over several hops."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from hermes_orm.dialects.base import Dialect, Work
from hermes_orm.dialects.sqlite import driver as sqlite_driver
from hermes_orm.dialects.sqlite.group import Unit, run_unit
from hermes_orm.dialects.sqlite.thread import ConnectionThread
from hermes_orm.dialects.sqlite.transaction import HeldConnection
from hermes_orm.dialects.transport import HeldTransaction
from hermes_orm.dialects.waiting import patiently

T = TypeVar("T")


class HeldFileTransaction(HeldTransaction):
    """Runs units on the writer's thread, one hop each, until `let_go` gives the writer back."""

    def __init__(
        self,
        dialect: Dialect,
        thread: ConnectionThread,
        held: HeldConnection,
        patience: float,
        let_go: Callable[[], None],
    ) -> None:
        super().__init__(dialect)
        self._thread = thread
        self._held = held
        self._patience = patience
        self._let_go = let_go

    async def _run(self, work: Work[T]) -> T:
        unit = Unit(work)
        result: T = await self._thread.call(lambda: run_unit(self._held, unit))
        return result

    async def _commit(self) -> None:
        # Who reads in another process holds up a COMMIT; sending it again runs nothing twice.
        await patiently(
            lambda: self._thread.call(self._held.commit),
            patience=self._patience,
            is_busy=sqlite_driver.is_busy,
            exhausted=sqlite_driver.lock_error,
        )

    async def _release(self) -> None:
        try:
            await self._thread.call(self._held.rollback)
        finally:
            self._let_go()
