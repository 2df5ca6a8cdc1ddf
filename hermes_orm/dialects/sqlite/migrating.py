"""Connections that change the schema of a SQLite file."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, NullPool, create_engine

from hermes_orm.completion import to_completion
from hermes_orm.dialects.adoption import Adoption, AdoptionReport
from hermes_orm.dialects.sqlite import ddl, files
from hermes_orm.dialects.sqlite import driver as sqlite_driver
from hermes_orm.dialects.sqlite.adoption import adopting
from hermes_orm.dialects.sqlite.adoption.backup import Backup
from hermes_orm.dialects.sqlite.adoption.fingerprint import Findings, examine, objects
from hermes_orm.dialects.sqlite.adoption.lock import migration_lock
from hermes_orm.dialects.sqlite.adoption.original import original
from hermes_orm.errors import SchemaError
from hermes_orm.location import SqliteLocation

CACHE_KIB = 48_000
"""Pages that a migration holds: fewer reads, and no spill while the file is still being copied."""

logger = logging.getLogger("hermes_orm.sqlite")
T = TypeVar("T")


async def migrate_with(
    location: SqliteLocation,
    action: Callable[[Connection], T],
    lock_wait: float,
    adoption: Adoption | None,
) -> T:
    """Run `action` in one immediate transaction; another program's file is adopted in it.

    A file of the newest schema is only stamped. Every error leaves the file as it was.
    """
    path = location.path
    path.parent.mkdir(parents=True, exist_ok=True)
    migration = _Migration(path, lock_wait, adoption)
    async with migration_lock(path, lock_wait):
        with _created(path):
            return await to_completion(asyncio.to_thread(migration.run, action))


async def read_with(location: SqliteLocation, action: Callable[[Connection], T]) -> T:
    """Run `action` on a connection that can't write; a missing file is an OperationalError."""

    def run() -> T:
        with opened(location.path, mode="ro") as connection:
            return action(connection)

    return await asyncio.to_thread(run)


@contextlib.contextmanager
def _created(path: Path) -> Iterator[None]:
    """Create the file for its owner only, if it is missing; a failure removes it again.

    An existing file is not opened here: closing a descriptor drops this process's locks on it.
    """
    if path.exists():
        yield
        return
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    try:
        yield
    except BaseException:
        if path.stat().st_size == 0:
            path.unlink()
        raise


class _Migration:
    """One run over one file, on one thread."""

    def __init__(self, path: Path, lock_wait: float, adoption: Adoption | None) -> None:
        self._path = path
        self._lock_wait = lock_wait
        self._adoption = adoption
        self._backup: Backup | None = None

    def run(self, action: Callable[[Connection], T]) -> T:
        """Run `action` between what a file needs before and after it; commit all, or nothing."""
        with opened(self._path, timeout=self._lock_wait) as connection:
            self._examine(connection)  # a refusal must not even take the write lock
            try:
                with connection.begin():
                    connection.exec_driver_sql(f"PRAGMA cache_size = {-CACHE_KIB}")
                    _lock(connection, self._lock_wait)
                    result, report = self._migrate(connection, action)
            except BaseException:
                if self._backup is not None:
                    self._backup.discard()
                raise
        if self._adoption is not None:
            self._adoption.report(report)
        return result

    def _migrate(
        self, connection: Connection, action: Callable[[Connection], T]
    ) -> tuple[T, AdoptionReport]:
        findings = self._examine(connection)
        if findings.kind == "unstamped head":
            ddl.complete_head(connection)
        adoption = self._adoption
        is_known = findings.stamp is not None and not (adoption and adoption.covers_stamped)
        if findings.kind != "old" or is_known or adoption is None:
            holes = self._fill_holes(connection, findings)
            report = AdoptionReport(findings.version, findings.shape, findings.revision, holes)
            return action(connection), report
        if findings.version is None and findings.stamp is None and not adoption.guesses:
            raise SchemaError(
                "the file does not tell its schema version, and guessing is off: nothing was "
                f"changed; it looks like version {findings.shape}: adopt it without --no-guess"
            )
        if adoption.backup:
            self._backup = Backup(self._path, findings.start)
        lasting = adopting.lasting_tables(connection, adoption)
        with original(self._path, self._backup, lasting) as counted:
            prepared = adopting.prepare(connection, findings, adoption, lasting)
            result = action(connection)
            report = adopting.finish(connection, prepared, counted)
        if self._backup is not None:
            self._backup.keep()
            report = replace(report, backup=str(self._backup.target))
        return result, report

    def _fill_holes(self, connection: Connection, findings: Findings) -> tuple[str, ...]:
        """Build the indexes that a file of the newest schema lacks, unless somebody waits."""
        adoption = self._adoption
        if findings.kind != "head" or adoption is None or adoption.is_hasty:
            return ()
        holes = ddl.INDEXES - objects(connection.connection.driver_connection, "index")
        if holes and adoption.covers_stamped:
            adoption.replay(connection, findings.revision)
            return tuple(sorted(holes))
        return ()

    def _examine(self, connection: Connection) -> Findings:
        findings = examine(connection.connection.driver_connection)
        if findings.kind == "old" and findings.stamp is None and self._adoption is None:
            raise SchemaError(
                f"the file holds {findings} of another program and is not adopted yet: "
                f"nothing was changed; run hermes-orm db upgrade {self._path}"
            )
        return findings


@contextlib.contextmanager
def opened(path: Path, *, mode: str = "rw", timeout: float = 5.0) -> Iterator[Connection]:
    """Connect to a file that exists, in autocommit; what is no database is left untouched."""
    files.check_is_database(str(path))
    with files.claimed(path), _new_engine(path, mode, timeout).connect() as connection:
        yield connection


def _new_engine(path: Path, mode: str, timeout: float) -> Engine:
    module = sqlite_driver.module()

    def connect() -> Any:
        uri = f"{path.absolute().as_uri()}?mode={mode}"
        return module.connect(uri, uri=True, timeout=timeout, isolation_level=None)

    return create_engine("sqlite+pysqlite://", creator=connect, module=module, poolclass=NullPool)


def _lock(connection: Connection, wait: float) -> None:
    try:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    except Exception as error:
        if not sqlite_driver.is_busy(sqlite_driver.as_standard(error)):
            raise
        raise SchemaError(
            f"the file is locked by another process since {wait:.0f} s or longer: "
            "wait for its migration or close it, then try again"
        ) from error
