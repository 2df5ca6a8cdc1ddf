"""A copy of the file beside it, made before the first change and kept."""

from __future__ import annotations

import os
import shutil
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hermes_orm import clock
from hermes_orm.dialects.sqlite import driver as sqlite_driver
from hermes_orm.errors import SchemaError

SPACE_FACTOR = 2
"""The copy, and a journal that can grow as large as the file."""
UNFINISHED = ".partial"


class Backup:
    """A copy of the file as it was; it bears its name only when `keep` is called.

    Whatever is killed before leaves a partial copy, which the next migration removes: a process
    that is killed again and again does not fill the disk.
    """

    def __init__(self, path: Path, version: int) -> None:
        """Take a name beside the database at `path`, for its owner only.

        Raises SchemaError when the disk has no room for copy and journal.
        """
        _check_space(path)
        _remove_unfinished(path)
        self.target = _free_name(path, version)
        self._partial = self.target.with_name(self.target.name + UNFINISHED)
        os.close(os.open(self._partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))

    def copy(self, source: Any) -> None:
        """Copy what a driver's connection sees."""
        _copy(source, self._partial)

    def keep(self) -> None:
        """Give the copy its name."""
        self._partial.rename(self.target)

    def discard(self) -> None:
        """Remove the copy: the file itself is as it was."""
        self._partial.unlink(missing_ok=True)
        self.target.unlink(missing_ok=True)


def _copy(source: Any, target: Path) -> None:
    connect = sqlite_driver.module().connect
    with closing(connect(str(target), isolation_level=None)) as copy:
        for pragma in ("cache_size = 10", "journal_mode = OFF"):  # no page of it is used again
            copy.execute(f"PRAGMA {pragma}").fetchall()
        source.backup(copy)  # SQLite's online backup; synchronised to disk when it ends


def _check_space(path: Path) -> None:
    wal = path.with_name(path.name + "-wal")
    size = path.stat().st_size + (wal.stat().st_size if wal.exists() else 0)
    free = shutil.disk_usage(path.parent).free
    if free < SPACE_FACTOR * size:
        raise SchemaError(
            f"a migration with a backup needs {SPACE_FACTOR * size:,} bytes beside {path.name}, "
            f"{free:,} are free: nothing was changed; make room, or run "
            f"hermes-orm db upgrade --no-backup"
        )


def _remove_unfinished(path: Path) -> None:
    """Remove what a migration that was killed while it copied has left."""
    for left in path.parent.glob(f"{path.name}.bak-v*{UNFINISHED}*"):
        left.unlink(missing_ok=True)


def _free_name(path: Path, version: int) -> Path:
    time = datetime.fromtimestamp(clock.now(), UTC)
    name = f"{path.name}.bak-v{version:02d}-{time:%Y%m%d-%H%M%S}"
    target, number = path.with_name(name), 1
    while target.exists():
        number += 1
        target = path.with_name(f"{name}-{number}")
    return target
