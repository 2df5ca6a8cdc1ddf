"""Journal mode and pragmas of a SQLite connection."""

from __future__ import annotations

import logging
import sys
import time
from typing import Any

from hermes_orm.dialects.sqlite import driver as sqlite_driver
from hermes_orm.errors import WalUnsupportedError

logger = logging.getLogger("hermes_orm.sqlite")

WAL_SIZE_LIMIT = 64 * 1024 * 1024
BUSY_TIMEOUT_MS = 1000
READER_BUSY_TIMEOUT_MS = 5000
CANNOT_DO_WAL = ("locking protocol", "not authorized", "disk i/o error")
_told: set[tuple[str, str]] = set()


def choose_journal(
    driver: Any, *, configured: str, label: str = "state.db", require_wal: bool = False
) -> str:
    """Set the journal mode and return the one that stands; a file that is WAL already stays WAL.

    A library with the WAL-reset bug puts a new file on the rollback journal. So does a file system
    that cannot do WAL, unless `require_wal` is set: then WalUnsupportedError is raised.
    """
    standing = _standing_mode(driver)
    if standing == "wal":
        if sqlite_driver.is_sqlite_wal_reset_vulnerable():
            _once(label, "SQLite %s has the WAL-reset bug and %s uses WAL", logging.WARNING)
        _wal_pragmas(driver)
        return "wal"
    if sqlite_driver.is_sqlite_wal_reset_vulnerable():
        _once(
            label, "SQLite %s has the WAL-reset bug: %s uses the rollback journal", logging.WARNING
        )
        return _set_delete(driver, strict=configured == "delete")
    if configured == "delete":
        return _set_delete(driver, strict=True)
    return _set_wal(driver, label, require_wal)


def _set_wal(driver: Any, label: str, require_wal: bool) -> str:
    for attempt in range(3):
        try:
            mode = _mode(driver, "wal")
        except sqlite_driver.module().OperationalError as error:
            text = str(error).lower()
            if not any(reason in text for reason in CANNOT_DO_WAL):
                raise
            if "disk i/o error" in text and attempt < 2:
                time.sleep(0.05)
                continue
            return _without_wal(driver, label, require_wal, error)
        if mode == "wal":
            _wal_pragmas(driver)
            return "wal"
        if require_wal:
            raise WalUnsupportedError(
                f"{label} stays in journal mode {mode}: WAL is not possible here"
            )
        _once(label, "SQLite %s cannot use WAL for %s", logging.ERROR)
        return mode
    raise AssertionError("unreachable")


def _without_wal(driver: Any, label: str, require_wal: bool, error: Exception) -> str:
    if _standing_mode(driver) == "wal":
        raise error
    if require_wal:
        raise WalUnsupportedError(f"{label}: WAL is not possible here ({error})") from error
    _once(label, "SQLite %s cannot use WAL for %s (file system)", logging.ERROR)
    return _set_delete(driver, strict=False)


def _set_delete(driver: Any, *, strict: bool) -> str:
    try:
        mode = _mode(driver, "delete")
    except sqlite_driver.module().OperationalError:
        if strict:
            raise
        return _standing_mode(driver) or "delete"
    if strict and mode not in ("delete", "memory"):
        raise sqlite_driver.module().OperationalError(
            f"journal mode delete is configured, but the file stays in mode {mode}"
        )
    return mode


def _standing_mode(driver: Any) -> str | None:
    """Return the journal mode without changing it, or None when the disk cannot tell."""
    for _ in range(4):
        try:
            return _mode(driver, None)
        except sqlite_driver.module().OperationalError as error:
            if "disk i/o error" not in str(error).lower():
                raise
            time.sleep(0.05)
    return None


def _mode(driver: Any, wanted: str | None) -> str:
    pragma = "PRAGMA journal_mode" if wanted is None else f"PRAGMA journal_mode={wanted}"
    return str(driver.execute(pragma).fetchone()[0]).lower()


def _wal_pragmas(driver: Any) -> None:
    _try(driver, f"PRAGMA journal_size_limit={WAL_SIZE_LIMIT}")
    if sys.platform == "darwin":
        _try(driver, "PRAGMA synchronous=FULL")
        _try(driver, "PRAGMA checkpoint_fullfsync=1")


def apply_pragmas(
    driver: Any, configured: dict[str, int], *, busy_timeout_ms: int, synchronous: str | None = None
) -> None:
    """Set the configured pragmas, foreign-key enforcement and the busy timeout of a connection."""
    for name, value in configured.items():
        _try(driver, f"PRAGMA {name}={value:d}")
    if synchronous is not None:
        driver.execute(f"PRAGMA synchronous={synchronous}")
    driver.execute("PRAGMA foreign_keys=ON")
    driver.execute(f"PRAGMA busy_timeout={busy_timeout_ms}")


def _try(driver: Any, pragma: str) -> None:
    try:
        driver.execute(pragma).fetchall()
    except sqlite_driver.module().OperationalError as error:
        logger.debug("%s was refused: %s", pragma, error)


def _once(label: str, message: str, level: int) -> None:
    if (label, message) not in _told:
        _told.add((label, message))
        logger.log(level, message, sqlite_driver.module().sqlite_version, label)
