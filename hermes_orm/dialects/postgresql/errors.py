"""PostgreSQL errors as callers see them: without statement, parameters or DETAIL."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from typing import Any

from sqlalchemy import exc

from hermes_orm.dialects.postgresql.options import DEFAULT_PORT, EngineOptions

BUSY = {"40001", "40P01", "55P03"}
"""Serialization failure, deadlock, lock timeout: the same unit may succeed in a moment."""
PROGRAM_LIMIT = "54000"
MISSING_DATABASE = "3D000"
MISSING = re.compile('database ".*" does not exist')
"""psycopg hands on no SQLSTATE of a refusal to connect."""
REACH = "start the server, or correct host, port, user and password of the URL"
CREATE = "create it first (CREATE DATABASE), or correct the database of the URL"
POOLED = (
    "this is a pooler: workers behind it set database.postgres.pooler: true, everything else "
    "connects to the server itself"
)


class ServerError(Exception):
    """The server's primary message with its SQLSTATE; `.orig` of what callers catch."""

    def __init__(self, message: str, sqlstate: str | None) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate


class _Plain:
    """Without what SQLAlchemy adds to a text: the class of `orig`, and a link to its manual."""

    def __str__(self) -> str:
        return str(vars(self)["orig"])


class StoreDatabaseError(_Plain, exc.DatabaseError, sqlite3.DatabaseError):
    """A PostgreSQL failure; host code that catches `sqlite3.Error` catches it too."""


class StoreOperationalError(_Plain, exc.OperationalError, sqlite3.OperationalError):
    """A failure of the connection or the server, or a lock that was not to be had."""


class StoreIntegrityError(_Plain, exc.IntegrityError, sqlite3.IntegrityError):
    """A constraint refused the change."""


class StoreDataError(_Plain, exc.DataError, sqlite3.DataError):
    """A value that its column cannot hold."""


class StoreProgrammingError(_Plain, exc.ProgrammingError, sqlite3.ProgrammingError):
    """A statement that the server does not accept."""


StoreError = (
    StoreDatabaseError
    | StoreOperationalError
    | StoreIntegrityError
    | StoreDataError
    | StoreProgrammingError
)

BY_CLASS: dict[str, type[Any]] = {
    "22": StoreDataError,
    "23": StoreIntegrityError,
    "42": StoreProgrammingError,
} | dict.fromkeys(("08", "25", "28", "3D", "40", "53", "55", "57", "58"), StoreOperationalError)


def sqlstate_of(error: BaseException) -> str | None:
    """Return the SQLSTATE of a driver's or a translated error, or None."""
    original = getattr(error, "orig", None) or error
    state = getattr(original, "sqlstate", None) or getattr(
        getattr(original, "__cause__", None), "sqlstate", None
    )
    return state if isinstance(state, str) else None


def is_from_driver(error: BaseException) -> bool:
    """Whether asyncpg, psycopg or SQLAlchemy raised it on behalf of the server."""
    if isinstance(error, exc.DBAPIError):
        return True
    return type(error).__module__.partition(".")[0] in ("asyncpg", "psycopg")


def translate(error: BaseException, *, lost: bool = False) -> BaseException:
    """Return the error that callers see; anything that is not the driver's comes back unchanged.

    `lost` says that the connection is gone, which asyncpg reports in several ways.
    """
    if isinstance(error, ServerError | StoreError):
        error.__context__ = None  # the driver's error, which shows values
        return error
    if isinstance(error, asyncio.TimeoutError) and not isinstance(error, exc.TimeoutError):
        return _store_error(StoreOperationalError, "the server did not answer in time", "57014")
    if lost and isinstance(error, OSError):
        return _store_error(StoreOperationalError, "connection to the server lost", "08006")
    if not is_from_driver(error):
        return error
    state = sqlstate_of(error)
    if state == PROGRAM_LIMIT and "index row" in _primary_message(error):
        return ValueError("an id, key or source is longer than an index holds: shorten it")
    if state is None:
        unreachable = lost or isinstance(error, exc.OperationalError)
        cls: type[Any] = StoreOperationalError if unreachable else StoreDatabaseError
    else:
        cls = BY_CLASS.get(state[:2], StoreDatabaseError)
    return _store_error(cls, _primary_message(error), state, lost=lost)


def not_connected(error: Exception, options: EngineOptions) -> BaseException:
    """Return the error of an attempt to connect: the server's refusal, or which one is missing."""
    state = sqlstate_of(error)
    if state is not None and (remedy := _remedy(error)):
        cls = BY_CLASS.get(state[:2], StoreDatabaseError)
        return _store_error(cls, f"{_primary_message(error)}: {remedy}", state)
    if state is not None:
        return translate(error)
    if isinstance(error, OSError) and error.strerror:
        reason = error.strerror
    elif isinstance(error, TimeoutError):
        reason = "no answer in time"
    elif is_from_driver(error) or isinstance(error, OSError):
        reason = _primary_message(error)
    else:
        return error
    location = options.location
    servers = ", ".join(f"{at.host}:{at.port or DEFAULT_PORT}" for at in location.endpoints)
    text = (
        f"cannot connect to PostgreSQL at {servers} ({location.mask(reason)}): "
        f"{_remedy(error) or REACH}"
    )
    return _store_error(StoreOperationalError, text, "08001")


def _remedy(error: BaseException) -> str | None:
    """Return what to do about a server that answered, where that is known."""
    reason = _primary_message(error)
    if "unsupported startup parameter" in reason:
        return POOLED
    is_missing = sqlstate_of(error) == MISSING_DATABASE or MISSING.search(reason)
    return CREATE if is_missing else None


def _store_error(
    cls: type[Any], message: str, state: str | None, *, lost: bool = False
) -> BaseException:
    made: BaseException = cls(
        None, None, ServerError(message, state), hide_parameters=True, connection_invalidated=lost
    )
    return made


def _primary_message(error: BaseException) -> str:
    """Return the message alone: DETAIL shows key values, CONTEXT shows statements."""
    original: Any = getattr(error, "orig", None) or error
    original = getattr(original, "__cause__", None) or original
    diagnostics = getattr(original, "diag", None)  # psycopg
    primary = getattr(diagnostics, "message_primary", None)
    if primary is None:
        primary = original.args[0] if original.args else type(original).__name__  # asyncpg
    return str(primary).partition("\n")[0]


def lock_error(error: BaseException, patience: float) -> BaseException:
    """Return the error of a call that waited `patience` seconds for other transactions."""
    state = sqlstate_of(error) or "55P03"
    return _store_error(
        StoreOperationalError,
        "database is locked: other transactions held what this call needs for "
        f"{patience:.0f} s or longer",
        state,
    )
