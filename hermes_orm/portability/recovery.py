"""Recovering the rows of a damaged SQLite file into a new one; the source is only copied."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

from hermes_orm.config import load_settings
from hermes_orm.dialects import make_dialect
from hermes_orm.dialects.bulk import loading_transport, make_bulk
from hermes_orm.dialects.sqlite.adoption.lock import try_lock, unlock
from hermes_orm.dialects.sqlite.damaged import DamagedFile, errors
from hermes_orm.errors import SessionRecoverySafetyError, SessionRecoverySourceError
from hermes_orm.home import hermes_home
from hermes_orm.location import SqliteLocation
from hermes_orm.portability.bundle import Bundle, check_space, copy_bundle, fingerprint, parts
from hermes_orm.portability.copying import fill_index, opened
from hermes_orm.portability.reloading import Reloading
from hermes_orm.portability.salvage import Salvage
from hermes_orm.portability.tables import carried_tables

REQUIRED: Final = ("sessions", "messages")
WORKING: Final = ".recovering"

Report = dict[str, Any]
Progress = Callable[[str, int, int], object]
"""Is told the table, how many of its rows are done, and how many there seem to be."""


async def inspect_session_database(
    source: str | Path, *, work_dir: str | Path | None = None
) -> Report:
    """Return what can be read of a database file that may be damaged; the file is only copied.

    `recoverable` says whether sessions and messages can be read in full; `inspection` lists tables,
    errors and warnings. Raises SessionRecoverySafetyError when the file is in use here, changes
    meanwhile, or when there is too little space for the copy.
    """
    path = Path(source)
    work = Path(work_dir) if work_dir is not None else Path(tempfile.gettempdir())
    space = check_space(path, work, None)

    def inspect() -> Report:
        with tempfile.TemporaryDirectory(prefix="hermes-orm-", dir=work) as folder:
            bundle = copy_bundle(path, Path(folder))
            with _damaged(bundle) as file:
                inspection = _inspect(file)
        required = [inspection["tables"].get(name, {}).get("status") for name in REQUIRED]
        return {
            "operation": "inspect",
            "source": str(path),
            "source_fingerprint": bundle.fingerprint,
            "source_unchanged": fingerprint(path) == bundle.fingerprint,
            "disk_space": space,
            "inspection": inspection,
            "recoverable": required == ["readable", "readable"],
        }

    return await asyncio.to_thread(inspect)


async def recover_session_database(
    source: str | Path,
    output: str | Path,
    *,
    work_dir: str | Path | None = None,
    chunk_size: int = 1000,
    progress_cb: Progress | None = None,
    allow_partial: bool = False,
) -> Report:
    """Copy the rows of a database file that may be damaged to a new file, and verify that.

    The source is copied first and never opened. `allow_partial` skips what can't be read: messages
    of lost sessions get a placeholder session. The output appears under its name when it is done;
    nobody installs it. Return the report. Raises SessionRecoverySafetyError when paths, space or a
    changing source forbid it, SessionRecoverySourceError when sessions or messages can't be read.
    """
    from hermes_orm.portability.verification import verify  # imports Alembic

    if chunk_size <= 0:
        raise SessionRecoverySafetyError(f"chunk_size must be 1 or more, not {chunk_size}")
    path, target = Path(source), Path(output)
    _check_output(path, target)
    work = Path(work_dir) if work_dir is not None else target.parent
    space = check_space(path, work, target)
    async with _working(target, work) as (folder, partial):
        bundle = await asyncio.to_thread(copy_bundle, path, folder)
        with _damaged(bundle) as file:
            inspection = await asyncio.to_thread(_inspect, file)
            copied = await _reload(file, partial, chunk_size, progress_cb, allow_partial)
        verification = await verify(partial, inspection, copied["copy"], partial=allow_partial)
        is_unchanged = fingerprint(path) == bundle.fingerprint
        is_complete = verification["complete"] and is_unchanged
        for before, after in zip(parts(partial), parts(target), strict=True):
            if before.exists():
                before.rename(after)
    return {
        "operation": "recover",
        "allow_partial": allow_partial,
        "source": str(path),
        "output": str(target),
        "source_bundle": sorted(bundle.fingerprint),
        "source_fingerprint": bundle.fingerprint,
        "source_unchanged": is_unchanged,
        "disk_space": space,
        "inspection": inspection,
        **copied,
        "verification": verification,
        "complete": is_complete,
        "partial": allow_partial and not is_complete,
        "verified": not verification["errors"],
        "installed": False,
    }


async def write_recovery_report(path: str | Path, report: Report) -> None:
    """Write a report as JSON to a new file; FileExistsError when there is one."""
    text = json.dumps(report, indent=2, ensure_ascii=False, default=str) + "\n"

    def write() -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)

    await asyncio.to_thread(write)


def _check_output(source: Path, output: Path) -> None:
    taken = {part.resolve() for part in parts(source)}
    for part in parts(output):
        if part.resolve() in taken:
            raise SessionRecoverySafetyError("the output is the source: name another file")
        if part.exists() or part.is_symlink():
            raise SessionRecoverySafetyError(f"{part} exists: name another output")


@asynccontextmanager
async def _working(output: Path, work: Path) -> AsyncIterator[tuple[Path, Path]]:
    """Yield a folder for the copy of the source, and where the output is made; both go away.

    What a killed recovery of the same output has left is removed first.
    """
    for folder in (output.parent, work):
        folder.mkdir(parents=True, exist_ok=True)
    lock = output.with_name(f"{output.name}{WORKING}.lock")
    descriptor = try_lock(lock)
    if descriptor is None:
        raise SessionRecoverySafetyError(f"another process is recovering to {output}")
    folders = {place / f"{output.name}{WORKING}" for place in (work, output.parent)}
    try:
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(mode=0o700)
        made = output.parent / f"{output.name}{WORKING}" / "made"
        made.mkdir()
        yield work / f"{output.name}{WORKING}", made / output.name
    finally:
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
        unlock(lock, descriptor)


@contextmanager
def _damaged(bundle: Bundle) -> Iterator[DamagedFile]:
    try:
        file = DamagedFile(bundle.database)
    except errors() as error:
        raise SessionRecoverySourceError(f"the file can't be read: {error}") from None
    try:
        yield file
    finally:
        file.close()


def _inspect(file: DamagedFile) -> Report:
    """Return journal mode, tables and problems; read every row of the required tables."""
    try:
        names = file.tables()
    except errors() as error:
        raise SessionRecoverySourceError(
            f"the definitions of tables can't be read: {error}; try a backup"
        ) from None
    report: Report = {
        "journal_mode": "wal" if file.is_wal else "delete",
        "tables": {},
        "errors": file.problems(),
        "warnings": [],
    }
    for table in (table.name for table in carried_tables()):
        if table not in names:
            report["tables"][table] = {"status": "missing"}
            continue
        try:
            columns = file.columns(table)
            rows = sum(map(len, Salvage(file, table, columns, 1000, partial=False).portions()))
            report["tables"][table] = {"status": "readable", "rows": rows, "columns": columns}
        except errors() as error:
            found = {"status": "failed", "rows": file.count(table), "error": str(error)}
            report["tables"][table] = found
    report["warnings"] += [
        f"{name} is no table of the schema and is left out"
        for name in sorted(names - {table.name for table in carried_tables()})
        if not name.startswith(("sqlite_", "messages_fts", "hermes_", "schema_version", "fts_"))
    ]
    return report


async def _reload(
    file: DamagedFile,
    output: Path,
    chunk_rows: int,
    progress: Progress | None,
    partial: bool,
) -> Report:
    """Put the rows of a file into a new one with the newest schema."""
    location = SqliteLocation(output)
    os.close(os.open(output, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    transport = loading_transport(location, load_settings(hermes_home()), make_dialect(location))
    tell = progress or (lambda table, done, total: None)
    async with opened(transport):
        reloading = Reloading(file, transport, make_bulk(location), chunk_rows, tell)
        report = await reloading.run(partial=partial)
    failed = [name for name in REQUIRED if report["copy"][name]["status"] in ("failed", "missing")]
    if failed and not partial:
        raise SessionRecoverySourceError(
            f"{' and '.join(failed)} can't be read in full: allow_partial (--allow-partial) saves "
            "what can be read"
        )
    if failed and report["copy"]["sessions"]["status"] == "missing":
        raise SessionRecoverySourceError("the file has no sessions: it is no session database")
    await fill_index(location, tell)
    return report
