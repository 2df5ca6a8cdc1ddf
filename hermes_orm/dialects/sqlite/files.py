"""Database files as files: which of them this process has open, and what stands at their place.

**Descriptors.** Closing any descriptor of a file drops all POSIX locks that the process holds on
it, those of SQLite's connections, too. So a database file is opened here only while no connection
of this process can have it, and it is never opened elsewhere but by SQLite.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from hermes_orm.dialects.sqlite.adoption.lock import try_lock, unlock
from hermes_orm.errors import DatabaseFileError

MAGIC = b"SQLite format 3\0"
SIDECARS = ("-wal", "-shm")
POLL_SECONDS = 0.02

Content = Literal["missing", "empty", "zeroed", "database", "something else", "unknown"]

_guard = threading.RLock()
"""Held to open a descriptor, and to claim a file: never both at once."""
_claims: Counter[str] = Counter()


class Claim:
    """What a connection holds on its file from before it opens it until it has closed it."""

    def __init__(self, path: str) -> None:
        self._name = os.path.realpath(path)
        self._is_taken = False

    def take(self) -> None:
        """From now on no descriptor of the file is opened and closed in this process."""
        with _guard:
            _claims[self._name] += 1
            self._is_taken = True

    def release(self) -> None:
        """Undo `take`, if it was called."""
        with _guard:
            if self._is_taken:
                self._is_taken = False
                _claims[self._name] -= 1
                if not _claims[self._name]:
                    del _claims[self._name]

    __del__ = release  # of a store that nobody closed


@contextmanager
def claimed(path: str | os.PathLike[str]) -> Iterator[None]:
    """Claim a file for connections that are opened and closed inside the block."""
    claim = Claim(os.fspath(path))
    claim.take()
    try:
        yield
    finally:
        claim.release()


@contextmanager
def untouched(path: str | os.PathLike[str]) -> Iterator[bool]:
    """Keep this process from connecting to a file; False when it has it open already."""
    with _guard:
        yield not is_live(path)


def is_live(path: str | os.PathLike[str]) -> bool:
    """Whether this process has a file open, be it through this project or by other code."""
    if os.path.realpath(path) in _claims:
        return True
    try:
        status = os.stat(path)
        numbers = [int(name) for name in os.listdir("/dev/fd")]
    except (OSError, ValueError):  # no such file, or no POSIX system, where closing does no harm
        return False
    for number in numbers:
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(number), status):
                return True
    return False


def content(path: str | os.PathLike[str], probe_bytes: int = 100) -> Content:
    """Return what a file holds by its first bytes; `unknown` if it can't, or must not, be read."""
    with untouched(path) as may_open:
        try:
            status = os.stat(path)
            if not stat.S_ISREG(status.st_mode):
                return "unknown"
            if status.st_size == 0:
                return "empty"
            if may_open:
                return _content(Path(path), probe_bytes)
        except FileNotFoundError:
            return "missing"
        except OSError:
            pass
        return "unknown"


def _content(path: Path, probe_bytes: int) -> Content:
    with path.open("rb", buffering=0) as file:
        head = file.read(max(len(MAGIC), probe_bytes))
    if head.startswith(MAGIC):
        return "database"
    return "something else" if head.strip(b"\0") else "zeroed"


def check_is_database(path: str) -> None:
    """Refuse a file that can't be a database before SQLite touches it, or a WAL beside it."""
    if content(path) in ("something else", "zeroed"):
        raise sqlite3.DatabaseError(
            f"file is not a database: {path} does not begin as a SQLite file does; neither it nor "
            "the files beside it were changed"
        )


def is_frozen(path: str) -> bool:
    """Whether nobody can write a file or beside it: no permission is given, or no mount allows it.

    SQLite can't read a WAL file there unless it is told that nothing will change. It must not be
    told so of a file that is half of a database: it would overlook the journal or WAL beside it.
    """
    entries = (Path(path), Path(path).parent)
    try:
        if any(_stat(path + suffix) for suffix in ("-journal", "-wal")):
            return False
        if os.name == "posix" and os.statvfs(path).f_flag & os.ST_RDONLY:
            return True
        return not any(entry.stat().st_mode & 0o222 for entry in entries)
    except OSError:
        return False


class Place:
    """The directory entries of an open database file and, with `wal`, of the files beside it."""

    def __init__(self, path: str, *, wal: bool = False) -> None:
        self._path = path
        self._status = os.stat(path)
        self._beside = [path + suffix for suffix in SIDECARS if wal]
        self._known: dict[str, os.stat_result] = {}

    def check(self) -> None:
        """Raise DatabaseFileError when another file, or an empty or no one, has taken the place."""
        status = _stat(self._path)
        if status is None or not os.path.samestat(status, self._status):
            raise DatabaseFileError(
                f"the database is no longer on disk at {self._path}: it was moved, replaced or "
                "deleted while it was open; nothing was stored; put it back, or close this store "
                "and open another one"
            )
        if not status.st_size and self._status.st_size:
            raise DatabaseFileError(
                f"database corruption: {self._path} was truncated to 0 bytes while it was open; "
                "nothing was stored; close this store, and restore a backup if it is still empty"
            )
        self._status = status

    def check_all(self) -> None:
        """Do what `check` does; look at the files beside it, too, which a writer has by now."""
        self.check()
        for name in self._beside:
            status = _stat(name)
            if status and name not in self._known:
                self._known[name] = status
            if status is None or not os.path.samestat(status, self._known[name]):
                raise DatabaseFileError(
                    f"a part of the database is no longer on disk: {name} was replaced or deleted "
                    "while it was open; nothing was stored; close every store of the database, "
                    "and open another one"
                )


def _stat(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


@contextmanager
def alone(path: Path, purpose: str, seconds: float) -> Iterator[bool]:
    """Hold the lock file `<name>.<purpose>.lock`; False when others keep it for `seconds`."""
    name = path.with_name(f"{path.name}.{purpose}.lock")
    deadline = time.monotonic() + seconds
    while (descriptor := try_lock(name)) is None and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    try:
        yield descriptor is not None
    finally:
        if descriptor is not None:
            unlock(name, descriptor)
