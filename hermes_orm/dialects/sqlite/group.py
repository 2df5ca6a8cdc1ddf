"""Several waiting write units in one transaction, run on the writer's thread."""

from __future__ import annotations

import contextvars
from collections.abc import Sequence
from typing import Any

from hermes_orm.dialects.base import Work
from hermes_orm.dialects.sqlite import driver as sqlite_driver
from hermes_orm.dialects.sqlite import repair
from hermes_orm.dialects.sqlite.transaction import HeldConnection, SQLiteTransaction


class Unit:
    """One caller's write: what to run, in which context, and what came of it."""

    __slots__ = ("cancelled", "context", "error", "state", "value", "work")

    def __init__(self, work: Work[Any]) -> None:
        self.work = work
        self.context = contextvars.copy_context()
        self.cancelled = False
        """Set by the caller's loop, read here before COMMIT."""
        self.state = "waiting"
        self.value: Any = None
        self.error: BaseException | None = None

    def ended(self, state: str, value: Any = None, error: BaseException | None = None) -> None:
        """Record what came of the unit: `done`, `failed`, `cancelled`, `busy` or `open`."""
        self.state, self.value, self.error = state, value, error


def hold(held: HeldConnection, units: Sequence[Unit]) -> int:
    """Begin the transaction of the one unit, which stays `open` for others to be run in it."""
    (unit,) = units
    try:
        held.begin("BEGIN IMMEDIATE")
    except BaseException as error:  # noqa: BLE001  (its caller gets it)
        unit.ended("busy" if sqlite_driver.is_busy(error) else "failed", error=error)
    else:
        unit.ended("open")
    return 0


def run_group(held: HeldConnection, units: Sequence[Unit]) -> int:
    """Run `units` in order, in one transaction where possible; return how many committed.

    A unit that fails after it changed something is left out, the others run again without it, and
    then it runs alone; what happens there is its result. Units can therefore run twice. While
    another connection holds the lock, all units without a result end as `busy`, nothing changed.
    """
    committed = 0
    apart: list[Unit] = []
    for unit in units:
        unit.state = "waiting"
    while True:
        group = [u for u in units if u.state == "waiting" and u not in apart]
        if not group and apart:
            group = [apart.pop(0)]
        if not group:
            return committed
        try:
            spoiler = _attempt(held, group)
        except BaseException as error:  # noqa: BLE001  (each caller gets it)
            held.rollback()
            if repair.is_damage(error) and repair.heal(held):
                _wait(group)
                continue
            _give_up(units, group, error)
            if sqlite_driver.is_busy(error):
                return committed
            continue
        if spoiler is None:
            committed += sum(unit.state == "done" for unit in group)
        else:
            held.rollback()
            if repair.is_damage(spoiler.error) and repair.heal(held):
                _wait(group)
            else:
                _start_over(group, spoiler, apart)


def _attempt(held: HeldConnection, group: Sequence[Unit]) -> Unit | None:
    """Run the group and commit; return the unit because of which it must be rolled back, if any."""
    held.begin("BEGIN IMMEDIATE")
    for unit in group:
        if unit.cancelled:
            unit.ended("cancelled")
            continue
        before = held.driver.total_changes
        try:
            unit.ended("done", run_unit(held, unit))
        except BaseException as error:
            unit.ended("failed", error=error)
            if sqlite_driver.is_busy(error):
                raise
            changed = held.driver.total_changes != before or not held.driver.in_transaction
            if (
                changed or len(group) == 1 or repair.is_damage(error)
            ):  # DDL is not counted: units that do it come alone
                return unit
    for unit in group:
        if unit.cancelled and unit.state == "done":
            return unit
    held.commit()
    return None


def run_unit(held: HeldConnection, unit: Unit) -> Any:
    """Run a unit in the transaction that is open, in its caller's context; return its result.

    One that goes on after SQLite has undone the transaction fails like one that does not.
    """
    tx = SQLiteTransaction(held)
    try:
        result = unit.context.run(unit.work, tx)
        held.check_intact()
        return result
    except StopIteration as error:  # it cannot be set on a future: the caller would wait for ever
        raise RuntimeError("a unit of work raised StopIteration") from error
    finally:
        tx.end()


def _give_up(units: Sequence[Unit], group: Sequence[Unit], error: BaseException) -> None:
    """Record an error of BEGIN or COMMIT; busy concerns every unit that has not committed."""
    busy = sqlite_driver.is_busy(error)
    for unit in units:
        if unit.state != "cancelled" and (unit in group or (busy and unit.state == "waiting")):
            unit.ended("busy" if busy else "failed", error=error)


def _wait(group: Sequence[Unit]) -> None:
    """Have all units of a group run again."""
    for unit in group:
        if unit.state != "cancelled":
            unit.state = "waiting"


def _start_over(group: Sequence[Unit], spoiler: Unit, apart: list[Unit]) -> None:
    for unit in group:
        if unit is not spoiler and unit.state != "cancelled":
            unit.state = "waiting"
    if spoiler.cancelled:
        spoiler.ended("cancelled")
    elif len(group) > 1:
        spoiler.state = "waiting"
        apart.append(spoiler)
