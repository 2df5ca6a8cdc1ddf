"""Every exception of the store that a caller may catch.

Argument and configuration errors are plain `ValueError` and `TypeError`; failures of a driver keep
the classes of `sqlite3` or SQLAlchemy.

**Host classes.** Code of the agent catches errors by the classes of its own module `hermes_state`.
Where that module is loaded, an instance of a class below is also an instance of the class of the
same name there. This happens when the error is created; the agent is never imported.
"""

import reprlib
import sqlite3
import sys
from typing import Any, ClassVar, Final, Self

_shortening: Final = reprlib.Repr()
_shortening.maxstring = _shortening.maxother = _shortening.maxlong = 1024


def shown(name: object) -> str:
    """Return an id or another name as errors show it: cut in its middle when it is long."""
    return _shortening.repr(name)


_JOINED: Final[dict[tuple[type[Any], type[Any]], type[Any]]] = {}


class StoreError(Exception):
    """Base of the store's own errors; they can be pickled and are host compatible."""

    _public: ClassVar[type["StoreError"]]

    def __init_subclass__(cls) -> None:
        if "_public" not in vars(cls):
            cls._public = cls

    def __new__(cls, *args: object, **kwargs: object) -> Self:
        """Create the error, as a subclass of the host's class too where there is one."""
        host = getattr(sys.modules.get("hermes_state"), cls.__name__, None)
        joined: type[Self] = _joined(cls, host)
        return super().__new__(joined, *args)

    def __init__(self, *args: object) -> None:
        # Not super(): a host class behind us has a constructor of its own.
        BaseException.__init__(self, *args)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self._public, self.args, vars(self))


def _joined(cls: type[Any], host: object) -> type[Any]:
    """Return the class that is both `cls` and `host`, or `cls` when there is none."""
    if not (isinstance(host, type) and issubclass(host, Exception)) or issubclass(cls, host):
        return cls
    if (cls, host) not in _JOINED:
        names = {"__module__": cls.__module__, "__doc__": cls.__doc__, "_public": cls}
        try:
            _JOINED[cls, host] = type(cls.__name__, (cls, host), names)
        except TypeError:  # layouts or method orders that exclude each other
            _JOINED[cls, host] = cls
    return _JOINED[cls, host]


def _restored(cls: type[StoreError], args: tuple[object, ...], state: dict[str, Any]) -> StoreError:
    error = cls.__new__(cls, *args)
    vars(error).update(state)
    return error


class StoreClosedError(StoreError, RuntimeError):
    """The store was closed; it is never opened again silently."""

    def __init__(self, operation: str = "this operation") -> None:
        super().__init__(f"SessionDB is closed; {operation} needs a new SessionDB")


class EventLoopError(StoreError, RuntimeError):
    """The store belongs to another event loop."""

    def __init__(self, operation: str = "this operation") -> None:
        super().__init__(
            f"SessionDB is bound to another event loop; {operation} needs a store of its own loop"
        )


class SchemaError(StoreError, RuntimeError):
    """The database's schema can't be used: foreign, newer, incomplete or in need of migration."""


class MigrationRequiredError(SchemaError):
    """The database has an older schema that can be brought to the one that is needed."""


class ReadOnlyStoreError(StoreError, PermissionError, sqlite3.OperationalError):
    """A method that writes was called on a store that was opened with `read_only=True`."""

    @classmethod
    def of(cls, operation: str) -> Self:
        """Return the error for the public method `operation`."""
        return cls(f"{operation}: the store is read-only; open it without read_only=True to write")


class StoreLockedError(StoreError, sqlite3.OperationalError):
    """Others kept the database busy until the patience of the call ended."""

    def __init__(self, patience_seconds: float) -> None:
        super().__init__(
            f"database is locked: another Hermes process kept it busy for {patience_seconds:.0f} s;"
            " try again, or end the long transaction"
        )


class DatabaseFileError(StoreError, sqlite3.OperationalError):
    """A SQLite file can't be used: it is not accessible, or no longer where it was opened."""


class WalUnsupportedError(StoreError, sqlite3.OperationalError):
    """WAL was required, and the file system can't do it."""


class UnknownSessionError(StoreError, sqlite3.IntegrityError, ValueError):
    """Rows were to be stored for a session that does not exist; nothing was written."""

    session_id: str

    def __init__(self, session_id: str) -> None:
        super().__init__(f"Unknown session {shown(session_id)}; create it first")
        self.session_id = session_id


class SessionTurnLeaseLostError(StoreError, RuntimeError):
    """The caller's turn lease on a session is gone: released, or taken over after it expired."""

    @classmethod
    def of(cls, session_id: str) -> Self:
        """Return the error for `session_id`."""
        return cls(f"Session turn lease lost for {shown(session_id)}; acquire it before writing")


class CompressionSessionBusyError(StoreError, RuntimeError):
    """A compression of this session is not, or no longer, the caller's."""

    @classmethod
    def of(cls, session_id: str) -> Self:
        """Return the error for `session_id`."""
        return cls(f"Compression lease lost for session {shown(session_id)}; nothing was written")


class SessionCompressionInProgressError(CompressionSessionBusyError):
    """Another holder has the compression lease of this session."""


class CompressionSessionClosedError(StoreError, RuntimeError):
    """The session was ended by compression; its conversation goes on in another session."""

    session_id: str

    def __init__(self, session_id: str) -> None:
        super().__init__(
            f"Session {shown(session_id)} was closed by compression;"
            " write to the live end of its chain"
        )
        self.session_id = session_id


class SessionResumeTooLargeError(StoreError, ValueError):
    """Resuming a session would load more messages than `sessions.max_resume_messages`."""

    message_count: int
    limit: int

    def __init__(
        self, message_count: int, limit: int = 20000, scope: str = "across its lineage"
    ) -> None:
        super().__init__(
            f"Session has at least {message_count} messages {scope}, more than {limit};"
            " raise sessions.max_resume_messages in config.yaml (0 switches the limit off)"
        )
        self.message_count = message_count
        self.limit = limit


class SessionExportTooLargeError(StoreError, ValueError):
    """Exporting a session would load more messages than `sessions.max_export_messages`."""

    session_id: str
    message_count: int
    limit: int

    def __init__(self, session_id: str, message_count: int, limit: int = 20000) -> None:
        super().__init__(
            f"Session {shown(session_id)} has at least {message_count} messages, more than {limit};"
            " raise sessions.max_export_messages in config.yaml (0 switches the limit off)"
        )
        self.session_id = session_id
        self.message_count = message_count
        self.limit = limit


class SessionRecoveryError(StoreError, RuntimeError):
    """A session database could not be recovered."""


class SessionRecoverySafetyError(SessionRecoveryError):
    """Recovery was refused: paths, free space, a changing source, or a bad chunk size."""


class SessionRecoverySourceError(SessionRecoveryError):
    """The source of a recovery has required tables that can't be read."""


class CopyError(StoreError, RuntimeError):
    """A database could not be copied: the target is in use, or does not equal its source."""
