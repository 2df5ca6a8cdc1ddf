"""Causes of errors and the last failure to open a store (engine.md 6.2-6.4)."""

import errno
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import exc

from hermes_orm import error_causes, errors
from hermes_orm.dialects.sqlite.driver import is_sqlite_wal_reset_vulnerable
from hermes_orm.error_causes import (
    PERSISTENCE_ERROR_CAUSES,
    classify_persistence_error,
    clear_init_error,
    format_session_db_unavailable,
    get_last_init_error,
    is_disk_full_error,
    is_malformed_db_error,
    last_init_record,
    record_init_error,
)
from hermes_orm.location import locate


class ServerError(Exception):
    def __init__(self, sqlstate: str, text: str = "Key (title)=(disk busy malformed)") -> None:
        super().__init__(text)
        self.sqlstate = sqlstate


def wrapped(original: Exception) -> exc.DBAPIError:
    return exc.OperationalError("INSERT busy", {"text": "disk malformed"}, original)


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        ("database is locked", "locked"),
        ("disk I/O error", "disk"),
        ("file is not a database", "corrupt"),
        (OSError(errno.ENOSPC, "no room"), "disk"),
        (OSError(errno.ENOSPC), "disk"),
        ("unable to open database file", "unknown"),
        ("request blocked by policy", "unknown"),
        ("the request is blocked, the table locked", "locked"),
        (sqlite3.OperationalError("database table is locked: x"), "locked"),
        ("SQLITE_BUSY", "locked"),
        ("session turn lease: database is locked", "turn_lease"),
        ("session 'x' was closed by compression", "compression_closed"),
        ("session is being compressed", "compression"),
        ("database disk image is malformed", "corrupt"),
        ("attempt to write a readonly database", "disk"),
        ("database or disk is full", "disk"),
        ("Not enough space", "disk"),
        (errors.SessionTurnLeaseLostError("x"), "turn_lease"),
        (errors.CompressionSessionClosedError("turn lease"), "compression_closed"),
        (errors.SessionCompressionInProgressError("x"), "compression"),
        (errors.StoreLockedError(3), "locked"),
        (errors.ReadOnlyStoreError.of("vacuum"), "disk"),
        (None, "unknown"),
        (3, "unknown"),
        ("", "unknown"),
        (exc.TimeoutError("QueuePool limit reached, connection timed out"), "unknown"),
    ],
)
def test_classes_and_texts(error: object, cause: str) -> None:
    assert classify_persistence_error(error) == cause
    assert cause in PERSISTENCE_ERROR_CAUSES


@pytest.mark.parametrize(
    ("state", "cause"),
    [
        ("40001", "locked"),
        ("40P01", "locked"),
        ("55P03", "locked"),
        ("53100", "disk"),
        ("58030", "disk"),
        ("25006", "disk"),
        ("XX001", "corrupt"),
        ("XX002", "corrupt"),
        ("08006", "unknown"),
        ("57P01", "unknown"),
        ("57014", "unknown"),
        ("23505", "unknown"),
    ],
)
def test_the_sqlstate_decides_and_no_text(state: str, cause: str) -> None:
    error = ServerError(state)
    assert classify_persistence_error(error) == cause
    assert classify_persistence_error(wrapped(error)) == cause


def test_statements_and_parameters_are_not_read() -> None:
    assert (
        classify_persistence_error(wrapped(sqlite3.OperationalError("no such table"))) == "unknown"
    )
    assert classify_persistence_error(wrapped(sqlite3.OperationalError("locked"))) == "locked"


@pytest.mark.parametrize(
    "error",
    [
        PermissionError(errno.EACCES, "Permission denied", "/srv/busybox/state.db"),
        "[Errno 13] Permission denied: '/srv/locked out/disk/state.db'",
        'cannot open "C:\\busy\\state.db"',
        "cannot open ~/disk/state.db: permission denied",
        "cannot open ../disk/state.db",
    ],
)
def test_paths_are_not_read(error: object) -> None:
    assert classify_persistence_error(error) == "unknown"


def test_disk_full() -> None:
    for full in (
        OSError(errno.ENOSPC, ""),
        ServerError("53100"),
        wrapped(ServerError("53100")),
        sqlite3.OperationalError("database or disk is full"),
        "write: ENOSPC",
        "No space left on device",
        "disk full",
    ):
        assert is_disk_full_error(full)
    for other in (
        None,
        28,
        "disk I/O error",
        OSError(errno.EACCES, "no"),
        "",
        ServerError("58030"),
    ):
        assert not is_disk_full_error(other)


def test_malformed() -> None:
    assert is_malformed_db_error(sqlite3.DatabaseError("database disk image is malformed"))
    assert is_malformed_db_error("malformed database schema (x) - duplicate")
    assert not is_malformed_db_error("malformed JSON")
    assert not is_malformed_db_error(None)


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    clear_init_error(last_init_record())
    yield
    clear_init_error(last_init_record())


def test_no_failure() -> None:
    assert get_last_init_error() is None
    assert format_session_db_unavailable() == "Session database not available."
    assert format_session_db_unavailable("No history") == "No history."


def test_a_failure_and_its_end() -> None:
    record_init_error(sqlite3.OperationalError("unable to open."), locate(Path("/x")))
    assert get_last_init_error() == "OperationalError: unable to open."
    expected = "Session database not available: OperationalError: unable to open."
    assert format_session_db_unavailable() == expected
    clear_init_error(last_init_record())
    assert get_last_init_error() is None


@pytest.mark.parametrize("words", ["locking protocol", "Not authorized", "disk I/O error"])
def test_the_hint_is_for_files(words: str) -> None:
    error = sqlite3.OperationalError(words)
    record_init_error(error)
    text = format_session_db_unavailable()
    assert "NFS/SMB/FUSE/ZFS" in text
    assert "https://www.sqlite.org/wal.html" in text
    assert text.endswith(".")
    record_init_error(error, locate("postgresql+asyncpg://u:s3cret@h/db"))
    assert "NFS" not in format_session_db_unavailable()


def test_the_password_is_not_recorded() -> None:
    url = "postgresql+asyncpg://u:s3%2Fcret@h/db"
    record_init_error(ValueError(f"cannot use {url} with s3/cret"), locate(url))
    assert get_last_init_error() == (
        "ValueError: cannot use postgresql+asyncpg://u:***@h/db with ***"
    )


def test_record_init_error_takes_a_text() -> None:
    error_causes.record_init_error("state.db held only zeros: moved away")
    assert get_last_init_error() == "state.db held only zeros: moved away"


@pytest.mark.parametrize(
    ("version", "vulnerable"),
    [
        ((3, 6), False),
        ((3, 7), True),
        ((3, 40, 1), True),
        ((3, 44, 6), False),
        ((3, 50, 7), False),
        ((3, 51, 0), True),
        ((3, 51, 3), False),
    ],
)
def test_wal_reset_band(version: tuple[int, ...], vulnerable: bool) -> None:
    assert is_sqlite_wal_reset_vulnerable(version) == vulnerable
