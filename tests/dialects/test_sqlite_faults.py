"""Disks that are full or fail, and files that lose their content under an open store.

L7, L8 and L11 are field reports; 6.1 to 6.4 are sections of engine.md.
"""

import asyncio
import os
import resource
import signal
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from hermes_orm import SessionDB, classify_persistence_error, is_disk_full_error
from hermes_orm.database import Transaction
from hermes_orm.dialects.sqlite import driver
from tests.journal import use_journal


@pytest.fixture(params=["delete", "wal"])
def path(request: pytest.FixtureRequest, make_location: Callable[..., str]) -> Path:
    """A store's file in either journal mode."""
    path = Path(make_location("sqlite"))
    use_journal(path, request.param)
    return path


@pytest.fixture
async def db(path: Path) -> AsyncIterator[SessionDB]:
    """A store with one session and one message."""
    async with SessionDB(path) as db:
        await db.create_session("s", "cli")
        await db.append_message("s", "user", "first")
        yield db


@contextmanager
def file_size_limit(limit: int) -> Iterator[None]:
    """No file of this process can grow beyond `limit` bytes: SQLite takes that for a bad disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    former = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, former)


def largest(path: Path) -> int:
    return max(os.stat(file).st_size for file in path.parent.glob(f"{path.name}*"))


async def test_full_database(db: SessionDB) -> None:  # L11, 6.4
    def limit(tx: Transaction) -> None:
        pragma = "PRAGMA max_page_count = "
        tx.connection.exec_driver_sql(pragma + "1").all()

    def lift(tx: Transaction) -> None:
        tx.connection.exec_driver_sql("PRAGMA max_page_count = 1000000").all()

    await db.database.write(limit)
    for _ in range(2):
        with pytest.raises(sqlite3.OperationalError, match="database or disk is full") as raised:
            await db.append_message("s", "user", "x" * 100_000)
        assert is_disk_full_error(raised.value)
        assert classify_persistence_error(raised.value) == "disk"
    assert [m["content"] for m in await db.get_messages("s")] == ["first"]
    session: Any = await db.get_session("s")
    assert session["message_count"] == 1
    await db.database.write(lift)
    await db.append_message("s", "user", "x" * 100_000)
    session = await db.get_session("s")
    assert session["message_count"] == 2


async def test_full_disk(db: SessionDB, path: Path) -> None:  # L11
    with file_size_limit(largest(path) + 10_000):
        for _ in range(2):
            with pytest.raises(sqlite3.OperationalError) as raised:
                await db.append_message("s", "user", "x" * 300_000)
            assert classify_persistence_error(raised.value) == "disk"
        assert [m["content"] for m in await db.get_messages("s")] == ["first"]
    await db.append_message("s", "user", "x" * 300_000)
    assert await db.message_count("s") == 2
    with closing(driver.module().connect(str(path))) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("database or disk is full", "disk"),
        ("disk I/O error", "disk"),
        ("attempt to write a readonly database", "disk"),
        ("database disk image is malformed", "corrupt"),
        ("something else", "unknown"),
    ],
)
async def test_causes_are_told_apart(db: SessionDB, text: str, cause: str) -> None:  # L11
    runs = []

    def fail(tx: Transaction) -> None:
        runs.append(text)
        raise driver.module().OperationalError(text)

    with pytest.raises(sqlite3.OperationalError, match=text) as raised:
        await db.database.write(fail)
    assert classify_persistence_error(raised.value) == cause
    assert len(runs) <= (3 if cause == "corrupt" else 1)  # damage may be one of the search index
    await db.append_message("s", "user", "second")
    assert await db.message_count("s") == 2


@pytest.mark.parametrize("loss", ["zeroed", "truncated", "text"])
async def test_content_lost_under_an_open_store(db: SessionDB, path: Path, loss: str) -> None:
    size = path.stat().st_size
    with path.open("r+b") as file:
        if loss == "truncated":
            file.truncate(size // 4096 * 1024)
        else:
            file.write(bytes(size) if loss == "zeroed" else b"text" * (size // 4))
    with closing(driver.module().connect(str(path), isolation_level=None)) as connection:
        is_wal = path.with_name(f"{path.name}-wal").exists()
        if not is_wal:
            with pytest.raises(driver.module().DatabaseError):
                connection.execute("UPDATE sessions SET title = NULL")
    for _ in range(2):
        error = await failure(db)
        assert (error is None) == is_wal or classify_persistence_error(error) == "corrupt", error


async def failure(db: SessionDB) -> Exception | None:
    try:
        await db.append_message("s", "user", "second")
    except sqlite3.DatabaseError as error:
        return error
    return None


class Once:
    """A unit that meets a file without a header on the connections it knows, `times` at most."""

    def __init__(self, times: int) -> None:
        self.times = times
        self.seen: list[Any] = []

    def __call__(self, tx: Transaction) -> str:
        self.seen.append(tx.connection)
        if len(self.seen) <= self.times:
            raise driver.module().DatabaseError("file is not a database")
        return "done"


async def test_file_that_was_no_database_for_a_moment(db: SessionDB) -> None:  # 4.6
    unit = Once(times=1)
    assert await db.database.write(unit) == "done"
    first, second = unit.seen
    assert first is not second
    assert [m["content"] for m in await db.get_messages("s")] == ["first"]
    with pytest.raises(sqlite3.DatabaseError, match="file is not a database"):
        await db.database.write(Once(times=1))
    assert await db.session_count() == 1


async def test_reopening_takes_everybody_along(path: Path) -> None:
    async with SessionDB(path) as db:
        await db.create_session("s", "cli")
        work = [db.database.write(Once(times=1)), *(db.set_meta(f"k{i}", "v") for i in range(300))]
        reads = [db.get_session("s") for _ in range(9)]
        done = await asyncio.gather(*work, *reads)
        assert done[0] == "done"
        assert {row["id"] for row in done[301:]} == {"s"}
        assert await db.get_meta("k299") == "v"


async def test_readers_do_not_pin_the_wal(make_location: Callable[..., str]) -> None:  # L8
    path = Path(make_location("sqlite"))
    use_journal(path, "wal")
    async with SessionDB(path) as db:
        await db.create_session("s", "cli")
        for _ in range(200):
            await db.get_session("s")
        rows = [{"role": "user", "content": "x" * 500} for _ in range(1000)]
        for _ in range(4):
            await db.append_messages_batch("s", rows, chunk_rows=20)
            await db.get_messages("s", limit=1)
        assert path.with_name(f"{path.name}-wal").stat().st_size < 16 * 2**20
