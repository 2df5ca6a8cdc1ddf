"""Opening, closing, cancelling: what holds for every operation of a store."""

import asyncio
import gc
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import bindparam, func, select

from hermes_orm import SessionDB
from hermes_orm.database import Transaction
from hermes_orm.dialects import Prepared
from hermes_orm.dialects.expressions import upsert
from hermes_orm.errors import EventLoopError, ReadOnlyStoreError, StoreClosedError
from hermes_orm.models import StateMeta

SET = Prepared(
    upsert(StateMeta, {"key": bindparam("key"), "value": bindparam("value")}, update=["value"])
)

SLEEP = Prepared(select(func.pg_sleep(0.1)))


def put(tx: Transaction, key: str, value: str = "x") -> None:
    tx.run(SET, {"key": key, "value": value})


def test_construction_does_no_input_or_output(location: str) -> None:
    before = threading.active_count()
    db = SessionDB(location)
    assert weakref.ref(db)() is db
    assert threading.active_count() == before


async def test_closing_an_unused_store_opens_nothing(db: Any) -> None:
    await db.close()
    with pytest.raises(StoreClosedError, match=r"SessionDB.*closed"):
        await db.get_meta("a")


async def test_any_number_of_closes_share_one(db: Any) -> None:
    await db.set_meta("k", "v")
    await asyncio.gather(db.close(), db.close(), db.close())
    with pytest.raises(RuntimeError, match="closed"):
        await db.set_meta("k", "w")


async def test_close_during_the_first_call_leaves_nothing_open(db: Any) -> None:
    before = threading.active_count()
    first = asyncio.create_task(db.get_meta("k"))
    await asyncio.sleep(0)
    await db.close()
    result = (await asyncio.gather(first, return_exceptions=True))[0]
    assert result is None or isinstance(result, StoreClosedError)
    assert threading.active_count() <= before


async def test_a_cancelled_close_finishes_first(db: Any) -> None:
    await db.set_meta("k", "v")
    closing = asyncio.create_task(db.close())
    await asyncio.sleep(0)
    for _ in range(3):
        closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    with pytest.raises(RuntimeError, match="closed"):
        await db.get_meta("k")
    await db.close()


async def test_the_context_manager_closes_and_hides_no_error(location: str) -> None:
    async def body() -> None:
        async with db:
            await db.set_meta("k", "v")
            raise KeyError("x")

    db = SessionDB(location)
    with pytest.raises(KeyError):
        await body()
    with pytest.raises(RuntimeError, match="closed"):
        await db.get_meta("k")


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_second_event_loop(location: str) -> None:
    use_from_two_loops(location)
    gc.collect()  # asyncio complains about sockets of the first loop, which nothing can close


def use_from_two_loops(location: str) -> None:
    db = SessionDB(location)
    asyncio.run(db.set_meta("k", "v"))
    if location.startswith("postgresql"):
        with pytest.raises(EventLoopError, match="event loop"):
            asyncio.run(db.get_meta("k"))
    else:
        assert asyncio.run(db.get_meta("k")) == "v"
    asyncio.run(db.close())


async def test_concurrent_first_calls_share_one_opening(db: Any) -> None:
    assert await asyncio.gather(*(db.get_meta("none") for _ in range(8))) == [None] * 8


async def test_a_read_only_store_refuses_writes_and_reads(
    db: Any, open_store: Callable[..., Any]
) -> None:
    await db.set_meta("k", "v")
    reader = open_store(read_only=True)
    assert await reader.get_meta("k") == "v"
    with pytest.raises(ReadOnlyStoreError, match="read-only"):
        await reader.set_meta("k", "w")
    assert await db.get_meta("k") == "v"


async def test_the_database_itself_refuses_a_write_inside_a_read(db: Any) -> None:
    with pytest.raises(Exception, match=r"read-?\s?only"):
        await db.database.read(lambda tx: put(tx, "k"))
    assert await db.get_meta("k") is None
    await db.set_meta("k", "still writable")


async def test_a_failed_unit_changes_nothing(db: Any) -> None:
    def unit(tx: Transaction) -> None:
        put(tx, "half")
        raise KeyError("boom")

    with pytest.raises(KeyError):
        await db.database.write(unit)
    assert await db.get_meta("half") is None


async def test_a_unit_that_stops_iteration_is_answered(db: Any) -> None:
    def unit(tx: Transaction) -> None:
        next(iter(()))

    with pytest.raises(RuntimeError):
        await asyncio.wait_for(db.database.write(unit), 5)
    await db.set_meta("k", "v")


async def test_a_transaction_is_useless_after_its_unit(db: Any) -> None:
    kept = await db.database.write(lambda tx: tx)
    with pytest.raises(RuntimeError, match="has ended"):
        put(kept, "late")
    assert await db.get_meta("late") is None


@pytest.mark.parametrize("cancels", [1, 3])
async def test_a_cancelled_write_changes_nothing(db: Any, cancels: int) -> None:
    await db.get_meta("open")
    started = threading.Event()

    def unit(tx: Transaction) -> None:
        put(tx, "cancelled")
        started.set()
        if db.database.dialect.name == "sqlite":
            time.sleep(0.1)  # on the connection's thread
        else:
            tx.all(SLEEP)
        put(tx, "cancelled", "twice")

    task = asyncio.create_task(db.database.write(unit))
    while not started.is_set():
        await asyncio.sleep(0.005)
    for _ in range(cancels):
        task.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await db.get_meta("cancelled") is None
    await db.set_meta("next", "works")


async def test_reads_see_committed_data_only(db: Any) -> None:
    await db.get_meta("open")
    seen = []
    holding, release = threading.Event(), asyncio.Event()

    async def other() -> None:
        while not holding.is_set():
            await asyncio.sleep(0.002)
        seen.append(await db.get_meta("k"))
        release.set()

    def unit(tx: Transaction) -> None:
        put(tx, "k", "uncommitted")
        holding.set()
        if db.database.dialect.name == "sqlite":
            time.sleep(0.1)
        else:
            tx.all(SLEEP)
        raise KeyError("rolled back")

    with pytest.raises(KeyError):
        await asyncio.gather(db.database.write(unit), other())
    await release.wait()
    assert seen == [None]
    assert await db.get_meta("k") is None
