"""Journal mode and pragmas of a SQLite connection."""

from __future__ import annotations

import logging
import sqlite3
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
    version = sqlite_driver.version_of(driver)
    is_vulnerable = sqlite_driver.is_sqlite_wal_reset_vulnerable(version)
    number = ".".join(map(str, version))
    if standing == "wal":
        if is_vulnerable:
            _once(label, f"SQLite {number} has the WAL-reset bug, and this file uses WAL")
        if configured == "delete":
            _once(
                label,
                "database.journal_mode is delete, but this file uses WAL, which is never ended "
                "while others may use it: stop every process and run PRAGMA journal_mode=DELETE",
            )
        _wal_pragmas(driver)
        return "wal"
    if is_vulnerable:
        _once(label, f"SQLite {number} has the WAL-reset bug: the rollback journal is used")
        return _set_delete(driver, strict=configured == "delete")
    if configured == "delete":
        return _set_delete(driver, strict=True)
    return _set_wal(driver, label, require_wal)


def _set_wal(driver: Any, label: str, require_wal: bool) -> str:
    for attempt in range(3):
        try:
            mode = _mode(driver, "wal")
        except sqlite_driver.operational_errors() as error:
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
        _once(label, f"WAL is not possible, the journal mode stays {mode}", logging.ERROR)
        return mode
    raise AssertionError("unreachable")


def _without_wal(driver: Any, label: str, require_wal: bool, error: Exception) -> str:
    if _standing_mode(driver) == "wal":
        raise error
    if require_wal:
        raise WalUnsupportedError(f"{label}: WAL is not possible here ({error})") from error
    _once(label, f"the file system cannot do WAL ({error}): the rollback journal is used")
    return _set_delete(driver, strict=False)


def _set_delete(driver: Any, *, strict: bool) -> str:
    try:
        mode = _mode(driver, "delete")
    except sqlite_driver.operational_errors():
        if strict:
            raise
        return _standing_mode(driver) or "delete"
    if strict and mode not in ("delete", "memory"):
        raise sqlite3.OperationalError(
            f"journal mode delete is configured, but the file stays in mode {mode}"
        )
    return mode


def _standing_mode(driver: Any) -> str | None:
    """Return the journal mode without changing it, or None when the disk cannot tell."""
    for _ in range(4):
        try:
            return _mode(driver, None)
        except sqlite_driver.operational_errors() as error:
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
    apply_configured(driver, configured)
    if synchronous is not None:
        driver.execute(f"PRAGMA synchronous={synchronous}")
    driver.execute("PRAGMA foreign_keys=ON")
    driver.execute(f"PRAGMA busy_timeout={busy_timeout_ms}")


def apply_configured(driver: Any, configured: dict[str, int]) -> None:
    """Set the pragmas of `config.yaml`; one that SQLite refuses is left out."""
    for name, value in configured.items():
        _try(driver, f"PRAGMA {name}={value:d}")


def _try(driver: Any, pragma: str) -> None:
    try:
        driver.execute(pragma).fetchall()
    except sqlite_driver.operational_errors() as error:
        logger.debug("%s was refused: %s", pragma, error)


def _once(label: str, message: str, level: int = logging.WARNING) -> None:
    if (label, message) not in _told:
        _told.add((label, message))
        logger.log(level, "%s: %s", label, message)
