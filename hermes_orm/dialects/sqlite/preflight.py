"""Whether a database file can be written, before SQLite opens anything."""

from __future__ import annotations

import asyncio
import logging
import os
import stat
from pathlib import Path

from hermes_orm.dialects.sqlite.files import SIDECARS
from hermes_orm.errors import DatabaseFileError
from hermes_orm.home import hermes_home

logger = logging.getLogger("hermes_orm.sqlite")

IS_EFFECTIVE = os.access in os.supports_effective_ids


async def preflight_db_writability(
    db_path: str | os.PathLike[str], *, db_label: str = "state.db"
) -> None:
    """Check that the file, its directory and its side files can be read and written.

    What lies inside the Hermes home is made writable for its owner; anything else is left alone.
    Raises `sqlite3.OperationalError` with the command that helps. Nothing happens for `:memory:`
    and `file:` names.
    """
    name = os.fspath(db_path)
    if name != ":memory:" and not name.startswith("file:"):
        await asyncio.to_thread(make_writable, Path(name), hermes_home(), db_label)


def make_writable(path: Path, home: Path, label: str) -> None:
    """Like `preflight_db_writability`, for code on a thread."""
    for needed in (path.parent, path, *(path.with_name(path.name + end) for end in SIDECARS)):
        if needed.exists() and not _has_access(needed):
            _grant(needed, home, label)


def _has_access(path: Path) -> bool:
    mode = os.R_OK | os.W_OK | (os.X_OK if path.is_dir() else 0)
    return os.access(path, mode, effective_ids=IS_EFFECTIVE)


def _grant(path: Path, home: Path, label: str) -> None:
    is_directory = path.is_dir()
    rights = stat.S_IRUSR | stat.S_IWUSR | (stat.S_IXUSR if is_directory else 0)
    if path.resolve().is_relative_to(home.resolve()):
        try:
            path.chmod(stat.S_IMODE(path.stat().st_mode) | rights)
        except OSError as error:
            logger.info("%s can't be made writable: %s", path, error.strerror)
        if _has_access(path):
            logger.info("%s was not writable for its owner; now it is", path)
            return
    kind = "directory" if is_directory else "file"
    command = f"chmod u+rw{'x' if is_directory else ''} {path}"
    warning = " (it holds committed data: never delete it)" if path.name.endswith("-wal") else ""
    raise DatabaseFileError(
        f"{label} can't be written: the {kind} {path} is read-only for this user{warning}; "
        f"run: {command}"
    )
