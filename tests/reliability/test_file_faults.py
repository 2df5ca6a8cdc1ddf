"""Files that others damage or take away under an open store, and what killed writers leave.

After each: the cause is told apart, nothing is acknowledged that is not in the file, nothing is
half-written, and the store goes on as soon as it can. What a store does before it opens a file, and
faults in their simplest form, are proven in tests/dialects/test_sqlite_{files,faults}.py.
"""

import asyncio
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert

from hermes_orm import SessionDB, classify_persistence_error
from hermes_orm.database import Transaction
from hermes_orm.dialects.sqlite import driver
from hermes_orm.errors import DatabaseFileError
from hermes_orm.models import StateMeta
from tests.journal import use_journal

PAGE = 4096
LONGEST_BLOCK = 0.95
"""Seconds; SQLite's own waiting for a lock, done on the loop, would take a second."""
KEPT = 12


def footprint() -> tuple[list[str], int]:
    """Return the threads and the number of open files of this process."""
    names = [t.name for t in threading.enumerate() if not t.name.startswith("asyncio_")]
    return sorted(names), len(os.listdir("/proc/self/fd"))


@pytest.fixture(autouse=True)
async def loop_is_free_and_nothing_is_left(sqlite_template: Path) -> AsyncIterator[None]:
    """No call blocks the event loop, and no thread or descriptor of a store stays."""
    before, blocked = footprint(), [0.0]

    async def tick() -> None:
        while True:
            began = time.monotonic()
            await asyncio.sleep(0.01)
            blocked.append(time.monotonic() - began)

    ticking = asyncio.create_task(tick())
    yield
    ticking.cancel()
    assert max(blocked) < LONGEST_BLOCK
    assert footprint() == before


@pytest.fixture(params=["delete", "wal"])
def path(request: pytest.FixtureRequest, make_location: Callable[..., str]) -> Path:
    """A store's file in either journal mode, in a folder of its own."""
    folder = Path(make_location("sqlite")).parent / "store"
    folder.mkdir()
    path = folder / "state.db"
    shutil.copyfile(request.getfixturevalue("sqlite_template"), path)
    use_journal(path, request.param)
    return path


@pytest.fixture
async def db(path: Path) -> AsyncIterator[SessionDB]:
    """A store whose session `s` fills some pages, of which SQLite has read all."""
    async with SessionDB(path) as db:
        await db.create_session("s", "cli")
        for number in range(KEPT):
            await db.append_message("s", "user", f"{number} " + "aqueduct " * 400)
        await db.search_messages("aqueduct")
        yield db


async def shell(*command: object) -> str:
    """Run a program; a descriptor closed in this process would drop the store's locks."""
    words = [str(word) for word in command]
    done = await asyncio.to_thread(subprocess.run, words, capture_output=True, text=True)
    assert done.returncode in (0, -9), done.stderr
    return done.stdout


READ = """
import sys
try:
    import pysqlite3.dbapi2 as sqlite
except ImportError:
    import sqlite3 as sqlite
connection = sqlite.connect(sys.argv[1])
for (text,) in connection.execute("SELECT content FROM messages ORDER BY id"):
    print(text.split()[0])
print("integrity:", *connection.execute("PRAGMA integrity_check(1)").fetchone())
"""


async def left_by_a_crash(path: Path, *, is_sound: bool = True) -> list[str]:
    """Return the first words of the messages that a power cut at this moment would leave."""
    copy = path.parent.with_name("crashed")
    await shell("cp", "-r", path.parent, copy)
    try:
        printed = await shell(sys.executable, "-c", READ, copy / path.name)
        words, verdict = (part.split() for part in printed.split("integrity:"))
        assert not is_sound or verdict == ["ok"]
        return words
    finally:
        shutil.rmtree(copy)


async def first_words(db: SessionDB) -> list[str]:
    return [str(message["content"]).split()[0] for message in await db.get_messages("s")]


NUMBERS = [str(number) for number in range(KEPT)]


async def test_a_unit_that_goes_on_after_the_disk_was_full(db: SessionDB, path: Path) -> None:
    """SQLite has undone its transaction by then: nothing may be done outside of it."""

    def careless(tx: Transaction) -> str:
        driver_connection: Any = tx.connection.connection.driver_connection
        pages = driver_connection.execute("PRAGMA page_count").fetchone()[0]
        tx.connection.execute(insert(StateMeta).values(key="before", value="x"))
        driver_connection.execute(f"PRAGMA max_page_count = {pages}")
        for size in (10**6, 1):  # the second fits
            try:
                tx.connection.execute(insert(StateMeta).values(key=f"k{size}", value="x" * size))
            except Exception:  # noqa: BLE001, S110
                pass
            finally:
                driver_connection.execute("PRAGMA max_page_count = 1000000")
        return "done"

    others = [db.set_meta(f"other {number}", "x") for number in range(3)]
    results = await asyncio.gather(
        *others[:2], db.database.write(careless), *others[2:], return_exceptions=True
    )
    assert classify_persistence_error(results.pop(2)) == "disk"
    assert results == [None] * 3
    for key in ("before", "k1", "k1000000"):
        assert await db.get_meta(key) is None
    assert [await db.get_meta(f"other {number}") for number in range(3)] == ["x"] * 3


# Content that is lost under an open store


def pages(path: Path) -> int:
    return path.stat().st_size // PAGE


async def overwrite(path: Path, first: int, count: int, source: str = "/dev/zero") -> None:
    target = [f"if={source}", f"of={path}", f"bs={PAGE}", f"seek={first}", f"count={count}"]
    await shell("dd", "conv=notrunc", "status=none", *target)


async def truncate(path: Path, count: int) -> None:
    os.truncate(path, count * PAGE)


DAMAGE: dict[str, Callable[[Path], Any]] = {
    "truncated to nothing": lambda path: truncate(path, 0),
    "truncated to a half": lambda path: truncate(path, pages(path) // 2),
    "truncated by a page": lambda path: truncate(path, pages(path) - 1),
    "zeroed": lambda path: overwrite(path, 0, pages(path)),
    "first page zeroed": lambda path: overwrite(path, 0, 1),
    "first page overwritten": lambda path: overwrite(path, 0, 1, "/dev/urandom"),
}


@pytest.mark.parametrize("damage", DAMAGE)
async def test_damage_while_open(db: SessionDB, path: Path, damage: str) -> None:
    wal = path.with_name(f"{path.name}-wal")
    if wal.exists():  # what is in the WAL as well would come back from there
        await shell(sys.executable, "-c", CHECKPOINT, path)
    await DAMAGE[damage](path)
    damaged = path.with_name("damaged")
    await shell("cp", path, damaged)
    acknowledged = []
    for number in range(KEPT, KEPT + 3):
        for call in (
            db.append_message("s", "user", f"{number} more"),
            db.get_messages("s"),
            db.list_sessions_rich(),
        ):
            try:
                result = await call
            except sqlite3.DatabaseError as error:
                assert classify_persistence_error(error) == "corrupt", error  # noqa: PT017
            else:
                acknowledged += [str(number)] if isinstance(result, int) else []
    if acknowledged:
        assert damage == "truncated by a page", "which can be one of an index that is given up"
        assert await left_by_a_crash(path, is_sound=False) == [*NUMBERS, *acknowledged]
        assert await first_words(db) == [*NUMBERS, *acknowledged]
    elif not wal.exists():
        assert await shell("cmp", path, damaged) == "", "made worse"


CHECKPOINT = """
import sys
try:
    import pysqlite3.dbapi2 as sqlite
except ImportError:
    import sqlite3 as sqlite
sqlite.connect(sys.argv[1]).execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
"""


@pytest.mark.parametrize("path", ["wal"], indirect=True)
@pytest.mark.parametrize("suffix", ["-wal", "-shm"])
@pytest.mark.parametrize("is_replaced", [True, False])
async def test_files_beside_it_are_lost_while_open(
    db: SessionDB, path: Path, suffix: str, is_replaced: bool
) -> None:
    beside = path.with_name(path.name + suffix)
    beside.unlink()
    if is_replaced:
        beside.touch()
    for _ in range(2):
        with pytest.raises(DatabaseFileError, match=f"{beside} was replaced or deleted"):
            await db.append_message("s", "user", "lost")
        assert await first_words(db) == NUMBERS
    with pytest.raises(DatabaseFileError):
        async with db.transaction() as unit:
            await unit.append_message("s", "user", "lost")
    await db.close()
    async with SessionDB(path) as other:
        if not is_replaced:
            assert await first_words(other) == NUMBERS
            await other.append_message("s", "user", "next")


@pytest.mark.parametrize("path", ["delete"], indirect=True)
async def test_journal_is_lost_during_a_transaction(db: SessionDB, path: Path) -> None:
    journal = path.with_name(f"{path.name}-journal")
    words = ["12", "13"]
    try:
        async with db.transaction() as unit:
            for word in words:
                await unit.append_message("s", "user", word)
                journal.unlink(missing_ok=True)
    except sqlite3.OperationalError as error:
        assert classify_persistence_error(error) == "disk"  # noqa: PT017
    # SQLite could not end the commit properly: all of it, or nothing.
    assert await first_words(db) in (NUMBERS, [*NUMBERS, *words])
    await db.append_message("s", "user", "next")
    assert (await left_by_a_crash(path))[-1] == "next"


async def test_folder_is_removed_while_open(db: SessionDB, path: Path) -> None:
    shutil.rmtree(path.parent)
    for _ in range(2):
        with pytest.raises(DatabaseFileError, match="no longer on disk") as raised:
            await db.append_message("s", "user", "lost")
        assert classify_persistence_error(raised.value) == "disk"
    await db.close()
    assert not path.parent.exists()
    async with SessionDB(path) as other:
        assert await other.session_count() == 0


# What a killed writer leaves

KILLED = """
import os, signal, sys
try:
    import pysqlite3.dbapi2 as sqlite
except ImportError:
    import sqlite3 as sqlite
connection = sqlite.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA cache_size=5")
connection.execute("BEGIN IMMEDIATE")
connection.execute("UPDATE messages SET content = 'lost ' || content")
connection.executemany("INSERT INTO state_meta VALUES (?, ?)", [(i, "x" * 3000) for i in range(99)])
os.kill(os.getpid(), signal.SIGKILL)
"""


async def test_what_a_killed_writer_has_left_is_undone(db: SessionDB, path: Path) -> None:
    is_wal = path.with_name(f"{path.name}-wal").exists()

    async def kill() -> None:
        await shell(sys.executable, "-c", KILLED, path)
        assert is_wal or path.with_name(f"{path.name}-journal").stat().st_size > 0

    async def of_a_reader() -> list[str] | None:
        async with SessionDB(path, read_only=True) as reader:
            try:
                return await first_words(reader)
            except sqlite3.OperationalError as error:
                assert classify_persistence_error(error) == "disk"  # noqa: PT017
                return None

    await kill()
    # A reader may not undo what is half-written, and so must not read it.
    assert await of_a_reader() == (NUMBERS if is_wal else None)
    assert await first_words(db) == NUMBERS
    assert await of_a_reader() == NUMBERS
    await kill()
    await db.append_message("s", "user", "12")
    assert await first_words(db) == await left_by_a_crash(path) == [*NUMBERS, "12"]
    await db.close()
    await kill()
    files = [*path.parent.iterdir()]
    for file in (*files, path.parent):
        file.chmod(0o555 if file.is_dir() else 0o444)
    assert await of_a_reader() == ([*NUMBERS, "12"] if is_wal else None)
    for file in (path.parent, *files):
        file.chmod(0o755 if file.is_dir() else 0o644)
    async with SessionDB(path) as other:
        assert await first_words(other) == [*NUMBERS, "12"]


# Permissions that are taken away


@pytest.mark.parametrize("journal", ["delete", "wal"])
async def test_permissions_are_taken_away_while_open(unprivileged: Path, journal: str) -> None:
    path = unprivileged / "state.db"
    use_journal(path, journal)
    expected: list[str] = []
    async with SessionDB(path) as db:
        await db.create_session("s", "cli")
        for number, mode in enumerate((0o755, 0o555, 0o000, 0o755)):
            unprivileged.chmod(0o755)
            path.chmod(mode & 0o666)
            unprivileged.chmod(mode)
            try:
                await db.append_message("s", "user", str(number))
                expected.append(str(number))
            except sqlite3.OperationalError as error:
                assert mode != 0o755, error  # noqa: PT017
            except PermissionError:
                assert mode == 0o000
            if mode != 0o000:
                assert await first_words(db) == expected
    assert {"0", "3"} <= set(expected)
    async with SessionDB(path) as other:
        assert await first_words(other) == expected


# Damage of what is derived


async def test_damaged_index_fails_a_transaction_and_is_repaired_after_it(
    db: SessionDB, path: Path
) -> None:
    with closing(driver.module().connect(str(path), isolation_level=None)) as other:
        other.execute("UPDATE messages_fts_data SET block = x'ff'")
    with pytest.raises(sqlite3.DatabaseError) as raised:  # noqa: PT012
        async with db.transaction() as unit:
            await unit.append_message("s", "user", "undone")
            await unit.database.write(lambda tx: db.database.dialect.indexing.optimize(tx))
    assert classify_persistence_error(raised.value) in ("corrupt", "unknown"), raised.value
    assert await first_words(db) == NUMBERS
    await db.append_message("s", "user", "12 cisterns")
    assert len(await db.search_messages("cisterns")) == 1
    assert len(await db.search_messages("aqueduct")) == KEPT
    async with db.transaction() as unit:
        await unit.append_message("s", "user", "13")
    assert await first_words(db) == [*NUMBERS, "12", "13"]
