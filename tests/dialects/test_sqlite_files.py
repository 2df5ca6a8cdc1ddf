"""Files that are damaged, read-only, moved or shared: what a store does before and while it writes.

Numbers are the worked examples of engine.md section 9; L1 to L11 are field reports.
"""

import asyncio
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from hermes_orm import (
    SessionDB,
    get_last_init_error,
    is_zeroed_state_db,
    migrations,
    preflight_db_writability,
    quarantine_zeroed_state_db,
)
from hermes_orm.dialects.sqlite import driver, files, quarantine
from hermes_orm.errors import DatabaseFileError
from tests.journal import use_journal

TRY_LOCK = """
import sys
try:
    import pysqlite3.dbapi2 as sqlite
except ImportError:
    import sqlite3 as sqlite
connection = sqlite.connect(sys.argv[1], timeout=0, isolation_level=None)
try:
    connection.execute("BEGIN IMMEDIATE")
    print("free")
except sqlite.OperationalError as error:
    print(error)
"""


async def try_lock(path: Path) -> str:
    """Return what another process is told that wants to write."""
    command = [sys.executable, "-c", TRY_LOCK, str(path)]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, check=True)
    return str(done.stdout.decode().strip())


def names(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir() if file.name != "home"}


@pytest.fixture(params=["delete", "wal"])
def path(request: pytest.FixtureRequest, make_location: Callable[..., str]) -> Path:
    """A store's file in either journal mode."""
    path = Path(make_location("sqlite"))
    use_journal(path, request.param)
    return path


async def test_zeroed_file_is_put_aside_once(tmp_path: Path) -> None:  # 11, L4
    path = tmp_path / "state.db"
    path.write_bytes(bytes(4096))
    (tmp_path / "state.db-wal").write_bytes(b"left")
    stores = [SessionDB(path) for _ in range(4)]
    await asyncio.gather(*(db.create_session(f"s{i}", "cli") for i, db in enumerate(stores)))
    assert await stores[0].session_count() == 4
    [kept] = tmp_path.glob("state.db.zeroed-*.bak")
    assert kept.read_bytes() == bytes(4096)
    assert kept.with_name(f"{kept.name}-wal").read_bytes() == b"left"
    assert not (tmp_path / "state.db.quarantine.lock").exists()
    for db in stores:
        await db.close()


async def test_zeroed_file_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:  # 11
    path = tmp_path / "state.db"
    path.write_bytes(bytes(4096))
    async with SessionDB(path) as db:
        await db.session_count()
        [kept] = tmp_path.glob("state.db.zeroed-*.bak")
        for report in (get_last_init_error(), caplog.text):
            for part in (kept.name, "4096 bytes", "state-snapshots"):
                assert part in str(report)
    async with SessionDB(path) as db:
        await db.session_count()
    assert get_last_init_error() is None


async def test_processes_put_a_zeroed_file_aside_once(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    path.write_bytes(bytes(8192))
    script = (
        "import asyncio, sys; from hermes_orm import SessionDB\n"
        "async def main():\n"
        "    async with SessionDB(sys.argv[1]) as db: await db.create_session(sys.argv[2], 'cli')\n"
        "asyncio.run(main())"
    )
    command = [sys.executable, "-W", "error", "-c", script, str(path)]
    both = [await asyncio.create_subprocess_exec(*command, name) for name in ("a", "b")]
    assert [await process.wait() for process in both] == [0, 0]
    assert len(list(tmp_path.glob("state.db.zeroed-*.bak"))) == 1
    async with SessionDB(path) as db:
        assert await db.session_count() == 2


async def test_what_counts_as_zeroed(tmp_path: Path) -> None:
    def written(content: bytes) -> Path:
        path = tmp_path / "some.db"
        path.write_bytes(content)
        return path

    assert await is_zeroed_state_db(written(bytes(5)))
    assert not await is_zeroed_state_db(written(b""))
    assert not await is_zeroed_state_db(written(bytes(99) + b"x"))
    assert await is_zeroed_state_db(written(bytes(99) + b"x"), probe_bytes=50)
    assert not await is_zeroed_state_db(written(bytes(15) + b"x"), probe_bytes=1)
    assert not await is_zeroed_state_db(written(b"SQLite format 3\0" + bytes(100)))
    assert not await is_zeroed_state_db(tmp_path / "missing")
    assert not await is_zeroed_state_db(tmp_path)
    os.mkfifo(tmp_path / "fifo")
    assert not await is_zeroed_state_db(tmp_path / "fifo")
    assert await quarantine_zeroed_state_db(tmp_path / "missing") is None
    zeroed = written(bytes(100))
    with files.claimed(zeroed):
        assert not await is_zeroed_state_db(zeroed)
        assert await is_zeroed_state_db(zeroed, force=True)
        assert await quarantine_zeroed_state_db(zeroed) is None
    with zeroed.open("rb"):  # by whatever code of this process
        assert not await is_zeroed_state_db(zeroed)
    moved = await quarantine_zeroed_state_db(zeroed)
    assert moved is not None
    assert moved.name.startswith("some.db.zeroed-")
    assert not zeroed.exists()


async def test_zeroed_file_that_cannot_be_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state.db"
    path.write_bytes(bytes(4096))
    monkeypatch.setattr(quarantine, "LOCK_SECONDS", 0.05)
    with files.alone(path, "quarantine", 0) as is_mine:
        assert is_mine
        async with SessionDB(path) as db:
            with pytest.raises(sqlite3.DatabaseError, match="not a database"):
                await db.session_count()
    assert path.read_bytes() == bytes(4096)


@pytest.mark.parametrize("read_only", [False, True])
async def test_foreign_file_and_its_wal_are_left_alone(tmp_path: Path, read_only: bool) -> None:
    """Example 12 and L5."""
    path, wal = tmp_path / "state.db", tmp_path / "state.db-wal"
    path.write_bytes(b"not a database" * 500)
    wal.write_bytes(b"\x37\x7f\x06\x82" + b"frames" * 100)
    before = path.read_bytes(), wal.read_bytes()
    async with SessionDB(path, read_only=read_only) as db:
        for _ in range(2):
            with pytest.raises(sqlite3.DatabaseError, match="file is not a database"):
                await db.get_session("s")
    for act in (migrations.upgrade, migrations.adopt):
        with pytest.raises(sqlite3.DatabaseError, match="file is not a database"):
            await act(str(path))
    assert (path.read_bytes(), wal.read_bytes()) == before
    assert names(tmp_path) == {"state.db", "state.db-wal"}


async def test_a_second_store_does_not_cancel_locks(path: Path) -> None:  # L6
    async with SessionDB(path) as first, SessionDB(path) as second:
        await first.session_count()
        async with first.transaction() as unit:
            await unit.create_session("s", "cli")
            assert "locked" in await try_lock(path)
            await is_zeroed_state_db(path)
            await quarantine_zeroed_state_db(path)
            await preflight_db_writability(path)
            SessionDB(path)
            assert await second.session_count() == 0
            await second.close()
            async with SessionDB(path, read_only=True) as third:
                assert await third.session_count() == 0
            assert "locked" in await try_lock(path)
        assert await try_lock(path) == "free"


async def test_claims_end_with_their_stores(path: Path) -> None:
    db = SessionDB(path)
    await asyncio.gather(*(db.get_meta("k") for _ in range(8)))
    assert files.is_live(path)
    link = path.with_name("link.db")
    link.symlink_to(path)
    assert files.is_live(link)
    await db.close()
    assert not files.is_live(path)
    assert not files._claims


@pytest.mark.parametrize("how", ["moved", "deleted", "replaced"])
async def test_nothing_is_acknowledged_that_is_not_in_the_file(path: Path, how: str) -> None:  # L10
    aside = path.with_name("aside.db")
    async with SessionDB(path) as db:
        await db.create_session("s", "cli")
        await db.append_message("s", "user", "kept")
        if how == "deleted":
            path.unlink()
        else:
            path.rename(aside)
        if how == "replaced":
            shutil.copyfile(aside, path)
        for _ in range(2):
            with pytest.raises(sqlite3.OperationalError, match=r"moved, replaced or deleted"):
                await db.append_message("s", "user", "lost")
        with pytest.raises(DatabaseFileError):
            async with db.transaction() as unit:
                await unit.append_message("s", "user", "lost")
        if how == "moved":
            aside.rename(path)
            await db.append_message("s", "user", "kept, too")
            assert [m["content"] for m in await db.get_messages("s")] == ["kept", "kept, too"]


async def test_closing_spares_the_wal_of_a_file_that_took_the_place(path: Path) -> None:
    async with SessionDB(path) as db:
        await db.create_session("s", "cli")
        path.rename(path.with_name("aside.db"))
        for suffix in ("-wal", "-shm"):  # whoever replaces a file well does this, too
            path.with_name(f"{path.name}{suffix}").unlink(missing_ok=True)
        with closing(driver.module().connect(str(path))) as other:
            other.execute("PRAGMA journal_mode=wal")
            other.execute("CREATE TABLE t (x)")
            await db.close()
            assert (path.parent / f"{path.name}-wal").stat().st_size > 0
            assert other.execute("SELECT count(*) FROM t").fetchone() == (0,)


async def test_moved_during_a_unit(path: Path) -> None:
    async with SessionDB(path) as db:
        await db.create_session("s", "cli")
        aside = path.with_name("aside.db")
        block = db.transaction()
        unit = await block.__aenter__()
        await unit.append_message("s", "user", "lost")
        path.rename(aside)
        with pytest.raises(sqlite3.OperationalError):
            await block.__aexit__(None, None, None)
        aside.rename(path)
        assert await db.message_count("s") == 0


@pytest.mark.parametrize("journal", ["delete", "wal"])
async def test_read_only_files(unprivileged: Path, journal: str) -> None:  # 24, L3
    home, other = unprivileged / "home", unprivileged / "other"
    for folder in (home, other):
        async with SessionDB(folder / "state.db") as db:
            await db.create_session("s", "cli")
        use_journal(folder / "state.db", journal)
        (folder / "state.db").chmod(0o444)
        folder.chmod(0o555)

    async with SessionDB(home / "state.db") as db:
        await db.create_session("t", "cli")
    assert home.stat().st_mode & 0o700 == 0o700

    async with SessionDB(other / "state.db") as db:
        for needed in (other, other / "state.db"):
            with pytest.raises(sqlite3.OperationalError, match=rf"chmod u\+rwx? {needed}"):
                await db.create_session("t", "cli")
            needed.chmod(0o700 if needed == other else 0o444)
    other.chmod(0o555)
    async with SessionDB(other / "state.db", read_only=True) as db:
        assert await db.session_count() == 1
    assert names(other) == {"state.db"}


async def test_preflight(unprivileged: Path) -> None:  # 4.9
    path, wal = unprivileged / "a" / "x.db", unprivileged / "a" / "x.db-wal"
    for nothing in (path, ":memory:", "file:x.db?mode=ro"):
        await preflight_db_writability(nothing)
    path.parent.mkdir()
    path.touch()
    wal.touch(mode=0o400)
    with pytest.raises(sqlite3.OperationalError, match="committed data") as raised:
        await preflight_db_writability(path, db_label="busy.db")
    assert "busy.db can't be written: the file" in str(raised.value)
    assert wal.stat().st_mode & 0o777 == 0o400
    assert not driver.is_busy(raised.value)  # for the words in its text


async def test_files_are_private(tmp_path: Path) -> None:  # 4.10
    path = tmp_path / "new" / "state.db"
    async with SessionDB(path) as db:
        await db.create_session("s", "cli")
        async with db.transaction() as unit:
            await unit.append_message("s", "user", "x")
            modes = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}
    assert set(modes.values()) == {0o600}
    assert len(modes) > 1, "no journal seen"


async def test_relative_path_is_of_the_directory_at_the_first_use(
    path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(path.parent)
    async with SessionDB(path.name) as db:
        await db.create_session("s", "cli")
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        await db.append_message("s", "user", "x")
        assert await asyncio.gather(*(db.message_count("s") for _ in range(3))) == [1] * 3
    assert names(tmp_path / "elsewhere") == set()


async def test_header_page_alone_is_an_empty_file(tmp_path: Path) -> None:  # 40, 4.7
    path = tmp_path / "state.db"
    with closing(driver.module().connect(str(path))) as connection:
        connection.execute("PRAGMA user_version=1")
    assert path.stat().st_size > 0
    async with SessionDB(path) as db:
        assert await db.session_count() == 0


async def test_failed_opening_is_told(tmp_path: Path) -> None:  # 6.3
    path = tmp_path / "state.db"
    path.mkdir()
    async with SessionDB(path) as db:
        with pytest.raises(sqlite3.OperationalError):
            await db.session_count()
        assert str(get_last_init_error()).startswith("OperationalError: ")
        path.rmdir()
        assert await db.session_count() == 0
        assert get_last_init_error() is None


async def test_many_stores_on_one_file(path: Path) -> None:  # L9
    stores = [SessionDB(path) for _ in range(5)]
    await stores[0].create_session("s", "cli")

    async def append(db: Any, number: int) -> None:
        for i in range(20):
            await db.append_message("s", "user", f"{number}-{i}")

    await asyncio.gather(*(append(db, n) for n, db in enumerate(stores)))
    await stores[0].close()
    contents = [m["content"] for m in await stores[1].get_messages("s")]
    for number in range(5):
        own = [text for text in contents if str(text).startswith(f"{number}-")]
        assert own == [f"{number}-{i}" for i in range(20)]
    for db in stores:
        await db.close()
