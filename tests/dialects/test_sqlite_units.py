"""Units of work on SQLite: one hop, shared commits, other processes' locks."""

import asyncio
import gc
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Column, Integer, MetaData, Table, delete
from sqlalchemy.exc import OperationalError
from sqlalchemy.schema import CreateTable

from hermes_orm import SessionDB
from hermes_orm.database import Transaction
from hermes_orm.dialects.sqlite import driver, upkeep
from hermes_orm.errors import StoreLockedError
from hermes_orm.models import StateMeta
from hermes_orm.repositories.meta import SET_META
from tests.journal import use_journal


def put(tx: Transaction, key: str, value: str = "x") -> str:
    tx.run(SET_META, {"key": key, "value": value})
    return key


@pytest.fixture(params=["delete", "wal"])
def path(request: pytest.FixtureRequest, make_location: Callable[..., str]) -> str:
    """A store's file in either journal mode; a file that is WAL stays WAL."""
    path = make_location("sqlite")
    connection = driver.module().connect(path)
    assert connection.execute(f"PRAGMA journal_mode={request.param}").fetchone() == (request.param,)
    connection.close()
    return path


@pytest.fixture
def other(path: str) -> Iterator[Any]:
    """A connection as another process would have it.

    Of the store's library: two libraries in one process do not see each other's locks.
    """
    connection = driver.module().connect(path, isolation_level=None, timeout=0)
    yield connection
    connection.close()


async def test_waiting_units_share_a_commit(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with SessionDB(path) as db:
        await db.get_meta("open")
        begun = []
        blocker = threading.Event()

        def wait(tx: Transaction) -> None:
            blocker.wait(5)

        first = asyncio.create_task(db.database.write(wait))
        await asyncio.sleep(0.02)
        held = db.database._transport._writer.held  # type: ignore[union-attr]
        begin = held.begin

        def counted(statement: str) -> None:
            begun.append(statement)
            begin(statement)

        monkeypatch.setattr(held, "begin", counted)
        rest = [asyncio.create_task(db.set_meta(f"k{i}", str(i))) for i in range(100)]
        await asyncio.sleep(0.02)
        blocker.set()
        await asyncio.gather(first, *rest)
        assert begun == ["BEGIN IMMEDIATE"] * 2  # 64 and 36
        assert await db.get_meta("k99") == "99"


async def test_units_commit_in_the_order_of_the_queue(path: str) -> None:
    order: list[int] = []
    async with SessionDB(path) as db:
        await db.get_meta("open")

        def unit(number: int) -> Callable[[Transaction], None]:
            def work(tx: Transaction) -> None:
                put(tx, str(number))
                order.append(number)

            return work

        await asyncio.gather(*(db.database.write(unit(i)) for i in range(150)))
    assert order == sorted(order)


async def test_a_failing_unit_of_a_group_takes_nobody_along(path: str) -> None:
    runs: list[str] = []

    def unit(name: str, *, changes: bool, fails: bool) -> Callable[[Transaction], str]:
        def work(tx: Transaction) -> str:
            runs.append(name)
            if changes:
                put(tx, name)
            if fails:
                raise KeyError(name)
            return name

        return work

    async with SessionDB(path) as db:
        await db.get_meta("open")
        results = await asyncio.gather(
            db.database.write(lambda tx: time.sleep(0.05)),
            db.database.write(unit("a", changes=True, fails=False)),
            db.database.write(unit("early", changes=False, fails=True)),
            db.database.write(unit("late", changes=True, fails=True)),
            db.database.write(unit("b", changes=True, fails=False)),
            return_exceptions=True,
        )
        assert [str(result) for result in results] == ["None", "a", "'early'", "'late'", "b"]
        assert runs == ["a", "early", "late", "a", "early", "b", "late"]
        assert [await db.get_meta(key) for key in ("a", "early", "late", "b")] == [
            "x",
            None,
            None,
            "x",
        ]


async def test_cancelled_units_of_a_group_are_left_out(path: str) -> None:
    async with SessionDB(path) as db:
        await db.get_meta("open")
        running = threading.Event()

        def slow(tx: Transaction) -> str:
            running.set()
            time.sleep(0.1)
            return put(tx, "slow")

        tasks = [
            asyncio.create_task(db.database.write(work))
            for work in (lambda tx: time.sleep(0.05), slow, lambda tx: put(tx, "other"))
        ]
        while not running.is_set():
            await asyncio.sleep(0.005)
        queued = asyncio.create_task(db.set_meta("queued", "x"))
        await asyncio.sleep(0)
        tasks[1].cancel()
        queued.cancel()
        results = await asyncio.gather(*tasks, queued, return_exceptions=True)
        assert [type(r) for r in results] == [
            type(None),
            asyncio.CancelledError,
            str,
            asyncio.CancelledError,
        ]
        assert [await db.get_meta(k) for k in ("slow", "other", "queued")] == [None, "x", None]


async def test_another_process_with_the_lock_delays_a_write_but_no_read(
    path: str, other: Any
) -> None:
    async with SessionDB(path) as db:
        await db.set_meta("k", "v")
        other.execute("BEGIN IMMEDIATE")
        write = asyncio.create_task(db.set_meta("k", "w"))
        await asyncio.sleep(0.05)
        assert await db.get_meta("k") == "v"
        other.execute("ROLLBACK")
        await write
        assert await db.get_meta("k") == "w"


async def test_patience_ends_with_a_lock_error(path: str, other: Any) -> None:
    async with SessionDB(path) as db:
        await db.set_meta("k", "v")
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(
            StoreLockedError, match=r"database is locked.*another Hermes process.*1 s"
        ):
            await db.database.write(lambda tx: put(tx, "k"), patience=1.2)
        other.execute("ROLLBACK")
        await db.set_meta("k", "later")


async def test_a_busy_begin_runs_nothing(path: str, other: Any) -> None:
    """A statement after a failed BEGIN would be in autocommit: no rollback would undo it."""
    runs = []
    async with SessionDB(path) as db:
        await db.get_meta("open")
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(sqlite3.OperationalError):
            await db.database.write(lambda tx: runs.append(put(tx, "k")), patience=0.1)
        other.execute("ROLLBACK")
        assert runs == []
        assert await db.get_meta("k") is None


@pytest.mark.parametrize("scope", ["statement", "snapshot"])
async def test_a_read_that_writes_is_refused(path: str, scope: Any) -> None:
    async with SessionDB(path) as db:
        with pytest.raises(sqlite3.OperationalError, match="attempt to write a readonly database"):
            await db.database.read(lambda tx: put(tx, "k"), scope=scope)
        with pytest.raises(sqlite3.OperationalError, match="attempt to write a readonly database"):
            await db.database.read(lambda tx: tx.connection.execute(delete(StateMeta)), scope=scope)
        await db.set_meta("k", "v")


async def test_checkpoints_every_fifty_writes_and_at_close(
    make_location: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_location("sqlite")
    use_journal(path, "wal")
    modes = []
    original = upkeep.checkpoint

    def counted(driver: Any, mode: str) -> None:
        modes.append(mode)
        original(driver, mode)

    monkeypatch.setattr(upkeep, "checkpoint", counted)
    async with SessionDB(path) as db:
        for number in range(101):
            await db.set_meta("k", str(number))
    assert modes == ["PASSIVE", "PASSIVE", "TRUNCATE"]


async def test_no_log_line_shows_what_is_stored(
    path: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with SessionDB(path) as db:
        await db.set_meta("k", "SECRET")
        assert await db.get_meta("k") == "SECRET"
    assert "SECRET" not in caplog.text


async def test_a_path_with_special_characters_is_one_file(tmp_path: Path) -> None:
    path = tmp_path / "a?b#c%20.db"
    use_journal(path, "wal")
    async with SessionDB(path) as db:
        await db.set_meta("k", "v")
        assert await db.get_meta("k") == "v"
        assert {p.name.partition(".db")[0] for p in tmp_path.iterdir()} == {"a?b#c%20"}


async def test_a_new_file_is_private(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "state.db"
    async with SessionDB(path) as db:
        await db.set_meta("k", "v")
    assert path.stat().st_mode & 0o077 == 0


async def test_an_empty_file_is_initialised_with_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "empty.db").touch()
    for name in ("empty.db", "new.db"):
        async with SessionDB(tmp_path / name) as db:
            assert await db.get_meta("k") is None
    assert [r.message for r in caplog.records if "0 bytes" in r.message] != []
    assert not any("new.db" in r.message and "0 bytes" in r.message for r in caplog.records)


async def test_garbage_is_refused_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "garbage.db"
    path.write_bytes(b"not a database, only text " * 100)
    async with SessionDB(path) as db:
        with pytest.raises(sqlite3.DatabaseError, match="file is not a database"):
            await db.get_meta("k")
    assert path.read_bytes() == b"not a database, only text " * 100
    assert [p.name for p in tmp_path.iterdir()] == ["garbage.db"]


async def test_in_memory_is_one_connection() -> None:
    async with SessionDB(":memory:") as db:
        await db.set_meta("k", "v")
        assert await asyncio.gather(*(db.get_meta("k") for _ in range(5))) == ["v"] * 5


@pytest.mark.parametrize("steps", range(0, 30, 3))
async def test_close_waits_for_a_reader_that_is_being_opened(path: str, steps: int) -> None:
    db = SessionDB(path)
    await db.set_meta("k", "v")
    reads = [asyncio.create_task(db.get_meta("k")) for _ in range(6)]
    for _ in range(steps):
        await asyncio.sleep(0)
    await db.close()
    await asyncio.gather(*reads, return_exceptions=True)
    assert "_connection_worker_thread" not in str(threading.enumerate())


async def test_close_waits_for_a_read_that_waits_for_another_process(path: str, other: Any) -> None:
    db = SessionDB(path)
    await db.set_meta("k", "v")
    other.execute("BEGIN EXCLUSIVE")
    read = asyncio.create_task(db.get_meta("k"))
    await asyncio.sleep(1.05)  # the driver's own wait is over
    closing = asyncio.create_task(db.close())
    await asyncio.sleep(0.05)
    other.execute("ROLLBACK")
    assert await asyncio.wait_for(read, 5) == "v"
    await closing


@pytest.mark.filterwarnings("ignore:.*before being closed:ResourceWarning")
async def test_a_store_that_nobody_closed_ends_its_threads_when_it_is_collected(path: str) -> None:
    db = SessionDB(path)
    await db.set_meta("k", "v")
    await db.get_meta("k")
    del db
    for _ in range(100):
        gc.collect()
        await asyncio.sleep(0.01)
        if "_connection_worker_thread" not in str(threading.enumerate()):
            return
    pytest.fail("a thread is left")


async def test_a_failing_unit_leaves_no_table_behind(path: str) -> None:
    def create(tx: Transaction) -> None:
        tx.connection.execute(CreateTable(Table("made", MetaData(), Column("a", Integer))))
        raise KeyError("roll back")

    async with SessionDB(path) as db:
        for _ in range(2):
            with pytest.raises(KeyError):
                await db.database.write(create, alone=True)


async def test_a_forgotten_store_does_not_keep_the_process_alive(path: str) -> None:
    import subprocess
    import sys

    script = (
        "import asyncio, sys; from hermes_orm import SessionDB\n"
        "db = SessionDB(sys.argv[1]); print(asyncio.run(db.get_meta('k')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, path], capture_output=True, text=True, timeout=30
    )
    assert done.stdout.strip() == "None"


def test_a_lock_is_recognised_through_sqlalchemy() -> None:
    locked = driver.module().OperationalError("database is locked")
    assert driver.is_busy(locked)
    assert driver.is_busy(OperationalError("SELECT 1", None, locked))
    assert not driver.is_busy(OperationalError("SELECT 'locked'", None, ValueError("locked")))
    assert not driver.is_busy(RuntimeError("database is locked"))


async def test_reads_in_memory_wait_for_a_transaction() -> None:
    async with SessionDB(":memory:") as db:
        async with db.transaction() as unit:
            await unit.create_session("s", "cli")
            reading = asyncio.create_task(db.session_count())
            await asyncio.sleep(0.05)
            assert not reading.done()
            with pytest.raises(RuntimeError, match="would wait for itself"):
                await db.session_count()
        assert await reading == 1


async def test_transaction_waits_for_another_process(path: str, other: Any) -> None:
    async with SessionDB(path) as db:
        await db.get_meta("open")
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreLockedError):
            await db.transaction(patience=0.1).__aenter__()
        entering = asyncio.create_task(db.transaction().__aenter__())
        await asyncio.sleep(0.05)
        entering.cancel()
        await asyncio.wait([entering])
        assert entering.cancelled()
        other.execute("ROLLBACK")
        async with db.transaction() as unit:
            await unit.set_meta("k", "v")
        assert await db.get_meta("k") == "v"


async def test_readers_of_another_process_hold_up_a_commit_only(path: str, other: Any) -> None:
    async with SessionDB(path) as db:
        async with db.transaction() as unit:
            await unit.set_meta("k", "v")
            other.execute("BEGIN")
            other.execute("SELECT count(*) FROM sessions").fetchone()
            asyncio.get_running_loop().call_later(0.05, other.execute, "ROLLBACK")
        assert await db.get_meta("k") == "v"


def test_transaction_of_a_loop_that_is_gone_is_undone(path: str) -> None:
    db = SessionDB(path)
    loop = asyncio.new_event_loop()
    block = db.transaction()

    async def begin() -> None:
        await (await block.__aenter__()).set_meta("k", "v")

    loop.run_until_complete(begin())
    loop.close()

    async def go_on() -> None:
        assert await db.get_meta("k") is None
        await db.set_meta("other", "v")
        assert [await db.get_meta(key) for key in ("k", "other")] == [None, "v"]
        await db.close()

    asyncio.run(go_on())
