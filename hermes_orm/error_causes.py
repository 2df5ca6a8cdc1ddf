"""Why storage failed: the cause of an error, and the last failure to open a store."""

import errno
import re
from typing import Final

from hermes_orm.errors import (
    CompressionSessionBusyError,
    CompressionSessionClosedError,
    SessionTurnLeaseLostError,
)
from hermes_orm.location import Location, PostgresLocation

PERSISTENCE_ERROR_CAUSES: Final = (
    "locked",
    "compression",
    "compression_closed",
    "turn_lease",
    "corrupt",
    "disk",
    "unknown",
)

_DISK_FULL = re.compile(
    "no space left on device|not enough space|database or disk is full|disk full|full disk|enospc"
)
_CLASS_CAUSES: Final = (
    (SessionTurnLeaseLostError, "turn_lease"),
    (CompressionSessionClosedError, "compression_closed"),
    (CompressionSessionBusyError, "compression"),
)
_SQLSTATE_CAUSES: Final = {
    "40001": "locked",
    "40P01": "locked",
    "55P03": "locked",
    "53100": "disk",
    "25006": "disk",
    "XX001": "corrupt",
    "XX002": "corrupt",
}
_TEXT_CAUSES: Final = tuple(
    (re.compile(pattern), cause)
    for pattern, cause in (
        ("turn lease", "turn_lease"),
        ("closed by compression", "compression_closed"),
        ("being compressed|compression lease", "compression"),
        ("malformed|not a database|database corruption", "corrupt"),
        ("(?<!b)locked|busy", "locked"),  # "blocked" is another matter
        (f"{_DISK_FULL.pattern}|disk|readonly|read-only", "disk"),
    )
)
# A path may hold any word: quoted up to the closing quote, else up to the next space.
_PATH_START = r"(?:[a-z]:)?\.{0,2}[/\\~]"
_PATH = re.compile(rf"(?<!\w)(['\"]){_PATH_START}.*?\1|(?<![^\s(=:]){_PATH_START}\S*", re.I)


def classify_persistence_error(exc_or_str: object) -> str:
    """Return the one of `PERSISTENCE_ERROR_CAUSES` that fits an exception or an error text.

    The server's SQLSTATE decides where there is one: its text may quote stored values.
    """
    for error_class, cause in _CLASS_CAUSES:
        if isinstance(exc_or_str, error_class):
            return cause
    state = _sqlstate(exc_or_str)
    if state is not None:
        return "disk" if state.startswith("58") else _SQLSTATE_CAUSES.get(state, "unknown")
    message = _message(exc_or_str)
    default = "disk" if is_disk_full_error(exc_or_str) else "unknown"
    return next((cause for pattern, cause in _TEXT_CAUSES if pattern.search(message)), default)


def is_disk_full_error(exc: object) -> bool:
    """Tell whether an exception or an error text means that no storage space is left."""
    if isinstance(exc, OSError) and errno.ENOSPC in (exc.errno, *exc.args):
        return True
    return _sqlstate(exc) == "53100" or _DISK_FULL.search(_message(exc)) is not None


def is_malformed_db_error(exc: object) -> bool:
    """Tell whether SQLite found the file's catalogue or pages damaged."""
    message = _message(exc)
    return any(
        text in message
        for text in ("malformed database schema", "database disk image is malformed")
    )


def _original(exc: object) -> object:
    """Return the driver's error: SQLAlchemy adds the statement and its parameters to the text."""
    return getattr(exc, "orig", None) or exc


def _sqlstate(exc: object) -> str | None:
    for error in (exc, _original(exc)):
        state = getattr(error, "sqlstate", None)
        if isinstance(state, str):
            return state
    return None


def _message(exc: object) -> str:
    """Return the error's own words in lower case, without paths; empty for other values."""
    error = _original(exc)
    if isinstance(error, OSError) and error.strerror:
        return str(error.strerror).lower()
    if isinstance(error, (str, BaseException)):
        return _PATH.sub("", str(error)).lower()
    return ""


_WAL_HINT: Final = (
    " (the file system may not support SQLite's write-ahead log: NFS/SMB/FUSE/ZFS, see"
    " https://www.sqlite.org/wal.html)"
)
_WAL_WORDS: Final = ("locking protocol", "not authorized", "disk i/o error")

_last_init_error: tuple[str, str] | None = None  # cause, hint


def record_init_error(error: BaseException | str, location: Location | None = None) -> None:
    """Remember why a store of this process could not be opened, without the password."""
    global _last_init_error
    cause = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
    hint = _WAL_HINT if any(word in cause.lower() for word in _WAL_WORDS) else ""
    if isinstance(location, PostgresLocation):
        cause, hint = location.mask(cause), ""
    _last_init_error = cause, hint


def last_init_record() -> tuple[str, str] | None:
    """Return what `clear_init_error` forgets: the failure that is remembered now."""
    return _last_init_error


def clear_init_error(record: tuple[str, str] | None) -> None:
    """Forget a failure after a store was opened; what was recorded meanwhile stays."""
    global _last_init_error
    if _last_init_error is record:
        _last_init_error = None


def get_last_init_error() -> str | None:
    """Return `"<class>: <text>"` of the last failed open, None after a successful one."""
    return None if _last_init_error is None else _last_init_error[0]


def format_session_db_unavailable(prefix: str = "Session database not available") -> str:
    """Return one sentence for the user: the prefix, the cause and a hint where there is one."""
    if _last_init_error is None:
        return f"{prefix}."
    cause, hint = _last_init_error
    return f"{prefix}: {cause.rstrip('.')}{hint}."
