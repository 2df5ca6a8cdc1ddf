"""Journal modes and pragmas, of a store and of connections that a host hands over.

Numbers are the worked examples of engine.md section 9; L1 and L2 are field reports.
"""

import logging
import sqlite3
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiosqlite
import pytest

from hermes_orm import (
    SessionDB,
    WalUnsupportedError,
    apply_database_pragmas,
    apply_wal_with_fallback,
    is_sqlite_wal_reset_vulnerable,
    sqlite_source_id,
)
from hermes_orm.dialects.sqlite import driver, journal
from tests.journal import use_journal


@pytest.fixture(autouse=True)
def nothing_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "_told", set())


@pytest.fixture
def sound(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library without the WAL-reset bug."""
    monkeypatch.setattr(driver, "is_sqlite_wal_reset_vulnerable", lambda version=None: False)


@pytest.fixture
def vulnerable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "is_sqlite_wal_reset_vulnerable", lambda version=None: True)


@pytest.fixture
def configure(hermes_home: Path) -> Callable[[str], None]:
    """`configure(text)`: what stands below `database:` in config.yaml."""

    def configure(text: str) -> None:
        hermes_home.mkdir(exist_ok=True)
        (hermes_home / "config.yaml").write_text(f"database: {{{text}}}\n")

    return configure


def stored_mode(path: Path) -> str:
    """Return the mode in the file's header."""
    return {1: "delete", 2: "wal"}[path.read_bytes()[18]]


async def opened(path: Path) -> Any:
    """Open a store and return what its writer says of itself."""
    async with SessionDB(path) as db:
        await db.session_count()
        connection = db.database._transport._writer.held.driver  # type: ignore[union-attr]
        names = ("journal_mode", "synchronous", "cache_size", "journal_size_limit", "foreign_keys")
        return {name: connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names}


def test_wal_reset_bug() -> None:  # 13
    vulnerable = [(3, 40, 1), (3, 51, 0), (3, 7), (3, 44, 5), (3, 45), (3, 50, 6)]
    sound = [(3, 44, 6), (3, 50, 7), (3, 51, 3), (3, 6), (4,)]
    assert [v for v in vulnerable if not is_sqlite_wal_reset_vulnerable(v)] == []
    assert [v for v in sound if is_sqlite_wal_reset_vulnerable(v)] == []


async def test_library_with_the_bug_gets_no_new_wal(
    tmp_path: Path, vulnerable: None, caplog: pytest.LogCaptureFixture
) -> None:  # 14
    for _ in range(2):
        assert (await opened(tmp_path / "new.db"))["journal_mode"] == "delete"
    assert caplog.text.count("WAL-reset bug") == 1
    use_journal(tmp_path / "old.db", "wal")
    assert (await opened(tmp_path / "old.db"))["journal_mode"] == "wal"
    assert stored_mode(tmp_path / "old.db") == "wal"


@pytest.mark.parametrize(
    ("configured", "mode"),
    [
        ("", "wal"),
        ("journal_mode: DELETE", "delete"),
        ("sqlite: {journal_mode: ' Delete '}", "delete"),
        ("journal_mode: truncate", "wal"),
        ("journal_mode: 42", "wal"),
        ("journal_mode: null", "wal"),
    ],
)
async def test_configured_mode(
    tmp_path: Path, sound: None, configure: Any, configured: str, mode: str
) -> None:  # 15, L2
    configure(configured)
    assert (await opened(tmp_path / "state.db"))["journal_mode"] == mode
    assert stored_mode(tmp_path / "state.db") == mode


async def test_existing_wal_file_stays_with_a_warning(
    tmp_path: Path, sound: None, configure: Any, caplog: pytest.LogCaptureFixture
) -> None:  # L2
    path = tmp_path / "state.db"
    await opened(path)
    configure("journal_mode: delete")
    for _ in range(2):
        assert (await opened(path))["journal_mode"] == "wal"
    assert caplog.text.count("is delete, but this file uses WAL") == 1
    async with SessionDB(path, read_only=True) as db:
        assert await db.session_count() == 0
    assert stored_mode(path) == "wal"


async def test_pragmas(
    tmp_path: Path, sound: None, configure: Any, caplog: pytest.LogCaptureFixture
) -> None:  # 16, 4.3
    found = await opened(tmp_path / "default.db")
    assert (found["synchronous"], found["foreign_keys"]) == (2, 1)
    assert found["journal_size_limit"] == 64 * 2**20
    configure('cache_size: "-4096", journal_size_limit: 1000000, sqlite: {synchronous: normal}')
    found = await opened(tmp_path / "set.db")
    assert (found["cache_size"], found["journal_size_limit"]) == (-4096, 1_000_000)
    assert found["synchronous"] == 1
    configure("cache_size: true")
    assert (await opened(tmp_path / "wrong.db"))["cache_size"] != 1
    assert "cache_size is ignored" in caplog.text


class Refusing(sqlite3.Connection):
    """A connection to a file system that cannot do WAL."""

    text = "locking protocol"
    asked = 0

    def execute(self, sql: str, *args: Any) -> Any:
        if sql == "PRAGMA journal_mode=wal":
            type(self).asked += 1
            raise sqlite3.OperationalError(self.text)
        return super().execute(sql, *args)


@pytest.fixture
async def connection(tmp_path: Path) -> AsyncIterator[aiosqlite.Connection]:
    """A host's own connection, of the standard library."""
    async with aiosqlite.connect(tmp_path / "host.db") as connection:
        yield connection


@pytest.fixture
async def refusing(tmp_path: Path) -> AsyncIterator[aiosqlite.Connection]:
    Refusing.asked = 0
    async with aiosqlite.connect(tmp_path / "host.db", factory=Refusing) as connection:
        yield connection


@pytest.mark.parametrize(
    ("text", "asked"), [("locking protocol", 1), ("not authorized", 1), ("disk I/O error", 3)]
)
async def test_file_system_without_wal(
    refusing: Any,
    sound: None,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    asked: int,
) -> None:  # L1, 4.4
    monkeypatch.setattr(Refusing, "text", text)
    with caplog.at_level(logging.WARNING):
        assert await apply_wal_with_fallback(refusing, db_label="x.db") == "delete"
        assert Refusing.asked == asked
        assert await apply_wal_with_fallback(refusing, db_label="x.db") == "delete"
    [record] = caplog.records
    assert text in record.message
    assert "x.db" in record.message
    with pytest.raises(WalUnsupportedError, match=text):
        await apply_wal_with_fallback(refusing, require_wal=True)


async def test_other_errors_are_raised(
    refusing: Any, sound: None, monkeypatch: pytest.MonkeyPatch
) -> None:  # L1
    monkeypatch.setattr(Refusing, "text", "database is locked")
    with pytest.raises(sqlite3.OperationalError, match="database is locked"):
        await apply_wal_with_fallback(refusing)


async def test_connection_of_a_host(connection: Any, sound: None, configure: Any) -> None:
    configure("cache_size: -1234, mmap_size: 65536")
    await apply_database_pragmas(connection, db_label="x.db")
    async with connection.execute("PRAGMA cache_size") as rows:
        assert await rows.fetchone() == (-1234,)
    assert await apply_wal_with_fallback(connection, require_wal=True) == "wal"
    configure("journal_mode: delete")
    assert await apply_wal_with_fallback(connection) == "wal"
    async with aiosqlite.connect(":memory:") as memory:
        assert await apply_wal_with_fallback(memory) == "memory"


async def test_its_own_library_counts(connection: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(driver, "is_sqlite_wal_reset_vulnerable", asked.append)
    await apply_wal_with_fallback(connection)
    assert asked == [sqlite3.sqlite_version_info]


async def test_source_id() -> None:
    assert (await sqlite_source_id()).startswith("20")
