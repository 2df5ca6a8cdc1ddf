"""Repair of a file with a malformed catalogue: on a copy, which then replaces its content."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypedDict

from hermes_orm.completion import to_completion
from hermes_orm.dialects.sqlite import driver as sqlite_driver
from hermes_orm.dialects.sqlite import files
from hermes_orm.dialects.sqlite.mending import health, surgery
from hermes_orm.dialects.sqlite.mending.keeping import ATTEMPTS, Ledger, back_up

logger = logging.getLogger("hermes_orm.sqlite")

LOCK_SECONDS = 20.0
"""So long is waited for another process that repairs the file, and for one that uses it."""

BUSY = (5, 6)
"""SQLITE_BUSY and SQLITE_LOCKED."""

_tried: set[str] = set()


class SchemaRepair(TypedDict):
    """What came of a repair; `strategy` is the one that helped."""

    repaired: bool
    strategy: str | None
    backup_path: str | None
    error: str | None


async def repair_state_db_schema(
    db_path: str | os.PathLike[str], *, backup: bool = True
) -> SchemaRepair:
    """Repair the catalogue and the indexes of a SQLite file that SQLite calls malformed.

    Rows of sessions and messages are never changed; a failure leaves the file as it is. Before a
    repair the file is copied, unless `backup` is false: without a copy nothing is done. After three
    failures on the same file nothing is tried any more. Not for a file that this process has open.
    """
    return await to_completion(asyncio.to_thread(_mend, Path(db_path), backup))


async def mend_once(path: str) -> bool:
    """Repair a file that could not be opened, once per process; whether it is worth opening now."""
    if not _is_first(path):
        return False
    result = await repair_state_db_schema(path)
    if result["repaired"]:
        logger.warning("%s was malformed; repaired: %s", path, result)
    else:
        logger.error("%s is malformed and can't be repaired: %s", path, result["error"])
    return result["repaired"]


def _is_first(path: str) -> bool:
    name = os.path.realpath(path)
    is_first = name not in _tried
    _tried.add(name)
    return is_first


def _mend(path: Path, backup: bool) -> SchemaRepair:
    if not path.exists():
        return _failed(f"{path} does not exist")
    if files.is_live(path):
        return _failed(f"this process has {path} open: close every store on it first")
    try:
        with files.alone(path, "repair", LOCK_SECONDS) as is_mine:
            if not is_mine:
                return _failed(f"another process has been repairing {path} for too long")
            return _mend_alone(path, backup)
    except (OSError, sqlite3.Error, sqlite_driver.module().Error) as error:
        return _failed(str(error))


def _mend_alone(path: Path, backup: bool) -> SchemaRepair:
    ledger = Ledger(path)
    if ledger.failures >= ATTEMPTS:
        return _failed(
            f"{ATTEMPTS} repairs of {path} have failed: manual recovery is needed "
            "(hermes-orm sessions recover, or a backup)"
        )
    with _copied(path) as copy:
        state = _state(path)
        problem = _copy_failure(path, copy) or health.problem(copy)
        if problem is None:
            ledger.forget()
            return SchemaRepair(
                repaired=True, strategy="already_healthy", backup_path=None, error=None
            )
        kept = str(back_up(path)) if backup else None
        strategy = surgery.operate(copy, problem)
        if strategy is None:
            ledger.count_failure()
            return _failed(problem, kept)
        if _state(path) != state:
            return _failed(f"{path} was changed by another process meanwhile", kept)
        _transfer(copy, path)
    ledger.forget()
    return SchemaRepair(repaired=True, strategy=strategy, backup_path=kept, error=None)


def _failed(error: str, backup_path: str | None = None) -> SchemaRepair:
    return SchemaRepair(repaired=False, strategy=None, backup_path=backup_path, error=error)


@contextmanager
def _copied(path: Path) -> Iterator[Path]:
    """Make room for a copy beside the file, which is removed in the end."""
    copy = path.with_name(f"{path.name}.repairing")
    names = [copy.with_name(copy.name + end) for end in ("", "-journal", *files.SIDECARS)]
    try:
        for name in names:
            name.unlink(missing_ok=True)  # of a process that was killed
        os.close(os.open(copy, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        yield copy
    finally:
        for name in names:
            name.unlink(missing_ok=True)


def _copy_failure(path: Path, copy: Path) -> str | None:
    try:
        _transfer(path, copy, mode="ro")
    except sqlite_driver.errors() as error:
        return str(error)
    return None


def _transfer(source: Path, target: Path, mode: str = "rw") -> None:
    """Replace the pages of a database by those of another one, in one transaction."""
    deadline = time.monotonic() + LOCK_SECONDS
    connect = sqlite_driver.module().connect

    def progress(status: int, remaining: int, total: int) -> None:
        if status in BUSY and time.monotonic() > deadline:
            raise TimeoutError(f"another process has kept {source} or {target} locked for too long")

    def connected(path: Path, mode: str) -> Any:
        return closing(connect(f"{path.absolute().as_uri()}?mode={mode}", uri=True))

    with (
        files.claimed(source),
        files.claimed(target),
        connected(source, mode) as origin,
        connected(target, "rw") as copy,
    ):
        origin.backup(copy, progress=progress)


def _state(path: Path) -> list[tuple[int, int]]:
    """Return what changes whenever the database does."""
    statuses = [name.stat() for name in (path, path.with_name(f"{path.name}-wal")) if name.exists()]
    return [(status.st_size, status.st_mtime_ns) for status in statuses if status.st_size]
