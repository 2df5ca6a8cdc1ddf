"""Which SQLite library is used, and its errors as those of the standard library."""

from __future__ import annotations

import functools
import importlib
import sqlite3
from typing import Any

from hermes_orm.errors import StoreError, StoreLockedError

MINIMUM = (3, 35, 0)


@functools.cache
def module() -> Any:
    """Return the DB-API module: `pysqlite3` when installed (extra `sqlite`), else `sqlite3`.

    Raises ImportError when the library is older than 3.35, which has no RETURNING.
    """
    try:
        found = importlib.import_module("pysqlite3.dbapi2")
    except ImportError:
        found = sqlite3
    if found.sqlite_version_info < MINIMUM:
        raise ImportError(
            f"SQLite {found.sqlite_version} is too old (3.35 or later is needed): "
            "install hermes_orm[sqlite], whose wheel carries a current library"
        )
    return found


def version() -> tuple[int, int, int]:
    """Return the version of the linked library."""
    info: tuple[int, int, int] = module().sqlite_version_info
    return info


def version_of(driver: Any) -> tuple[int, ...]:
    """Return the version of the library that a connection, possibly a host's own, belongs to."""
    (text,) = driver.execute("SELECT sqlite_version()").fetchone()
    return tuple(int(part) for part in text.split("."))


def errors() -> tuple[type[Exception], ...]:
    """Return the base classes of SQLite's errors."""
    return sqlite3.Error, module().Error


def operational_errors() -> tuple[type[Exception], ...]:
    """Return the classes of operational errors; a host's connection may be of another library."""
    return sqlite3.OperationalError, module().OperationalError


def is_sqlite_wal_reset_vulnerable(version_info: tuple[int, ...] | None = None) -> bool:
    """Whether a library can lose a write when a WAL is reset while another process opens it.

    None means the linked library. The bug came with 3.7.0; 3.51.3, 3.50.7 and 3.44.6 fix it.
    """
    given = (version() if version_info is None else version_info) + (0, 0, 0)
    number = given[:3]
    if not (3, 7, 0) <= number < (3, 51, 3):
        return False
    return not (((3, 50, 7) <= number < (3, 51, 0)) or ((3, 44, 6) <= number < (3, 45, 0)))


def as_standard(error: BaseException) -> BaseException:
    """Return a driver's error as the `sqlite3` class of its name; others come back unchanged."""
    wrapped = getattr(error, "orig", None)  # by SQLAlchemy, with statement and parameters
    if isinstance(wrapped, BaseException):
        error = wrapped
    if isinstance(error, sqlite3.Error) or not isinstance(error, module().Error):
        return error
    standard: type[sqlite3.Error] = getattr(sqlite3, type(error).__name__, sqlite3.DatabaseError)
    return standard(*error.args).with_traceback(error.__traceback__)


def is_busy(error: BaseException) -> bool:
    """Whether another connection holds the lock that was needed."""
    error = as_standard(error)
    if isinstance(error, StoreError):  # its text may name a path, which may hold any word
        return isinstance(error, StoreLockedError)
    if not isinstance(error, sqlite3.OperationalError):
        return isinstance(error, sqlite3.Error) and "no more rows available" in str(error)
    text = str(error)
    return "locked" in text or "busy" in text or "no more rows available" in text


def lock_error(error: BaseException, patience: float) -> BaseException:
    """Return the error of a call that waited `patience` seconds for another process's lock."""
    if "no more rows available" in str(error):
        return as_standard(error)
    exhausted = StoreLockedError(patience)
    exhausted.__cause__ = error
    return exhausted
