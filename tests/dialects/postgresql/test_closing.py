"""Cancelled units and closed stores on PostgreSQL: nothing happens afterwards."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable

import pytest
from sqlalchemy import func, literal_column, select

from hermes_orm import SessionDB
from hermes_orm.database import Transaction
from hermes_orm.dialects import Prepared
from hermes_orm.dialects.postgresql.permits import Permits
from hermes_orm.errors import StoreClosedError
from hermes_orm.repositories.meta import SET_META

LONG_SLEEP = Prepared(select(func.pg_sleep(30)))
NONSENSE = Prepared(select(literal_column("nonsense")))


@pytest.fixture
async def db(location: str) -> AsyncIterator[SessionDB]:
    async with SessionDB(location) as db:
        await db.set_meta("k", "before")
        yield db


@pytest.mark.parametrize("cancellations", [1, 3])
async def test_a_cancelled_statement_has_ended_when_its_caller_goes_on(
    db: SessionDB, open_store: Callable[[], SessionDB], cancellations: int
) -> None:
    holds, enough = asyncio.Event(), asyncio.Event()
    holder = open_store()
    loop = asyncio.get_running_loop()

    def hold(tx: Transaction) -> None:
        tx.run(SET_META, {"key": "k", "value": "held"})
        loop.call_soon(holds.set)
        tx.awaited(lambda driver: enough.wait())  # type: ignore[attr-defined]
        raise KeyError("roll back")

    held = asyncio.create_task(holder.database.write(hold))
    await holds.wait()
    waiting = asyncio.create_task(db.set_meta("k", "late"))
    await asyncio.sleep(0.1)
    for _ in range(cancellations):
        waiting.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await waiting
    enough.set()
    with pytest.raises(KeyError):
        await held
    await asyncio.sleep(0.1)
    assert await db.get_meta("k") == "before"


async def test_a_unit_that_goes_on_after_a_failed_statement_is_no_success(db: SessionDB) -> None:
    def swallow(tx: Transaction) -> None:
        tx.run(SET_META, {"key": "k", "value": "lost"})
        try:
            tx.all(NONSENSE)
        except Exception:  # noqa: BLE001  (this is the mistake)
            return

    with pytest.raises(RuntimeError, match="failed statement"):
        await db.database.write(swallow)
    assert await db.get_meta("k") == "before"


async def test_a_close_ends_units_that_take_too_long(
    db: SessionDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hermes_orm.dialects.postgresql.engine.CLOSE_WITHIN", 0.3)
    late = asyncio.create_task(db.database.read(lambda tx: tx.first(LONG_SLEEP)))
    await asyncio.sleep(0.1)
    began = time.monotonic()
    await db.close()
    assert time.monotonic() - began < 3
    with pytest.raises(StoreClosedError):
        await late


async def test_close_waits_for_calls_and_not_for_what_their_tasks_do_next(db: SessionDB) -> None:
    async def goes_on() -> None:
        await db.get_meta("k")
        await asyncio.sleep(60)

    task = asyncio.create_task(goes_on())
    await asyncio.sleep(0)
    began = time.monotonic()
    await db.close()
    assert time.monotonic() - began < 5
    task.cancel()


async def test_permits_are_waited_for_until_the_pools_timeout() -> None:
    permits = Permits(size=1, overflow=0, timeout=1.2)
    await permits.acquire()
    waiting = asyncio.create_task(permits.acquire())
    await asyncio.sleep(0.9)  # more than half of it
    permits.release()
    await waiting
