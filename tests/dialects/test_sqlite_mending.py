"""Repair of malformed files: what helps, what is kept, and when nothing is tried any more."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from hermes_orm import SessionDB, repair_state_db_schema
from hermes_orm.dialects.sqlite import driver
from hermes_orm.dialects.sqlite.mending import health, mend

SIDECARS = ("-wal", "-shm")

DUPLICATE = """
INSERT INTO sqlite_master (type, name, tbl_name, rootpage, sql)
SELECT type, name, tbl_name, rootpage, sql FROM sqlite_master WHERE name = 'messages_fts'
"""


@pytest.fixture(autouse=True)
def new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mend, "_tried", set())


@pytest.fixture(params=["delete", "wal"])
async def path(request: pytest.FixtureRequest, make_location: Callable[..., str]) -> Path:
    """A file with one session and one message."""
    path = Path(make_location("sqlite"))
    change(path, f"PRAGMA journal_mode={request.param}")
    async with SessionDB(path) as db:
        await db.create_session("s", "cli")
        await db.append_message("s", "user", "needle")
    return path


def change(path: Path, *statements: str) -> None:
    with closing(driver.module().connect(str(path), isolation_level=None)) as connection:
        connection.execute("PRAGMA writable_schema=1")
        for statement in statements:
            connection.execute(statement)


def user_version(path: Path) -> int:
    """Return what the header says; the catalogue is unreadable."""
    return int.from_bytes(path.read_bytes()[60:64], "big")


def corrupt(path: Path) -> None:
    """Damage the table of sessions itself: nothing helps against that."""
    with closing(driver.module().connect(str(path))) as connection:
        (root,) = connection.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'sessions'"
        ).fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    with path.open("r+b") as file:
        file.seek((root - 1) * size)
        file.write(b"\x99" * size)


def beside(path: Path, pattern: str) -> list[Path]:
    return sorted(path.parent.glob(f"{path.name}{pattern}"))


async def test_malformed_catalogue_is_repaired_at_opening_once(path: Path) -> None:  # example 21
    change(path, DUPLICATE)
    path.chmod(0o640)
    damaged = path.read_bytes()
    async with SessionDB(path) as db:
        assert [m["content"] for m in await db.get_messages("s")] == ["needle"]
        assert len(await db.search_messages("needle")) == 1
        await db.append_message("s", "user", "more")
    [kept] = beside(path, ".malformed-backup-*[0-9]")
    assert kept.read_bytes() == damaged
    assert kept.stat().st_mode & 0o777 == path.stat().st_mode & 0o777 == 0o640

    change(path, DUPLICATE)
    async with SessionDB(path) as db:
        with pytest.raises(sqlite3.DatabaseError, match="malformed database schema"):
            await db.get_messages("s")
    assert (await repair_state_db_schema(path))["strategy"] == "dedup_schema"
    assert beside(path, ".repair*") == []


async def test_what_helps(path: Path) -> None:
    async def strategy(*statements: str) -> str | None:
        change(path, *statements)
        result = await repair_state_db_schema(path, backup=False)
        assert result["backup_path"] is None
        assert (result["error"] is None) == result["repaired"], result
        return result["strategy"]

    assert await strategy() == "already_healthy"
    lost_index = "DELETE FROM messages_fts_data WHERE id > 10"
    assert await strategy(lost_index) == "rebuild_fts"
    lost_table = "DROP TABLE messages_fts_idx"
    assert await strategy("PRAGMA defensive=0", lost_table) in {"rebuild_fts", "drop_fts_rebuild"}
    async with SessionDB(path) as db:
        assert len(await db.search_messages("needle")) == 1
    # An index of another order than its definition says: its entries are looked for in vain.
    reorder = (
        "UPDATE sqlite_master SET sql = replace(sql, '(source', '(id') "
        "WHERE type = 'index' AND name = 'idx_sessions_source'"
    )
    assert await strategy(reorder) == "reindex_btree"
    assert health.problem(path) is None


async def test_open_file_is_not_repaired(path: Path) -> None:  # example 22
    async with SessionDB(path) as db:
        await db.get_meta("k")
        result = await repair_state_db_schema(path)
        assert (result["repaired"], result["backup_path"]) == (False, None)
        assert "close" in str(result["error"])
    assert (await repair_state_db_schema(path))["repaired"]
    missing = await repair_state_db_schema(path.with_name("missing"))
    assert "does not exist" in str(missing["error"])
    assert not path.with_name("missing").exists()


async def test_three_failures_are_enough(path: Path) -> None:  # example 23
    corrupt(path)
    damaged = path.read_bytes()
    for attempt in (1, 2, 3):
        result = await repair_state_db_schema(path)
        assert not result["repaired"]
        assert result["backup_path"] is not None
        [ledger] = beside(path, ".repair-attempts.json")
        assert json.loads(ledger.read_text())["failed_attempts"] == attempt
    [kept] = beside(path, ".malformed-backup-*[0-9]")
    assert result["backup_path"] == str(kept)
    result = await repair_state_db_schema(path)
    assert "manual recovery" in str(result["error"])
    assert result["backup_path"] is None
    assert path.read_bytes() == kept.read_bytes() == damaged

    with path.open("ab") as file:
        file.write(bytes(4096))
    result = await repair_state_db_schema(path)
    assert result["backup_path"] is not None
    assert json.loads(ledger.read_text())["failed_attempts"] == 1
    ledger.write_text("[}")
    assert "manual" not in str((await repair_state_db_schema(path))["error"])


async def test_without_a_backup_nothing_is_done(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(path, DUPLICATE)
    damaged = path.read_bytes()

    def fail(path: Path) -> Path:
        raise OSError("No space left on device")

    monkeypatch.setattr(mend, "back_up", fail)
    result = await repair_state_db_schema(path)
    assert (result["repaired"], result["backup_path"]) == (False, None)
    assert "No space" in str(result["error"])
    assert path.read_bytes() == damaged
    assert beside(path, ".repairing*") == []


async def test_three_backups_are_kept(path: Path) -> None:
    for number in range(5):
        change(path, DUPLICATE, f"PRAGMA user_version={number}")
        assert (await repair_state_db_schema(path))["repaired"]
    kept = [
        file for file in beside(path, ".malformed-backup-*") if file.suffix[-4:] not in SIDECARS
    ]
    assert sorted(user_version(file) for file in kept) == [2, 3, 4]


async def test_read_only_store_repairs_nothing(path: Path) -> None:
    change(path, DUPLICATE)
    damaged = path.read_bytes()
    async with SessionDB(path, read_only=True) as db:
        with pytest.raises(sqlite3.DatabaseError, match="malformed database schema"):
            await db.get_messages("s")
    assert path.read_bytes() == damaged
