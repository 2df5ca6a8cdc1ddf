"""What a repair leaves beside a file: copies of it as it was, and how often repairs failed."""

from __future__ import annotations

import json
import os
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from hermes_orm import clock
from hermes_orm.dialects.sqlite import files

KEPT: Final = 3
ATTEMPTS: Final = 3


def back_up(path: Path) -> Path:
    """Copy a damaged file and its side files, byte by byte; return the copy's path.

    A copy of the very same file is used again, and the newest three are kept. Raises OSError when
    it can't be done, so also when this process has the file open: copying would drop its locks.
    """
    with files.untouched(path) as may_open:
        if not may_open:
            raise OSError(f"this process has {path.name} open: close every store on it first")
        former = _backups(path)
        if former and _stamp(former[-1]) == _stamp(path):
            return former[-1]
        target = _free_name(path)
        try:
            for suffix in ("", *files.SIDECARS):
                source = path.with_name(path.name + suffix)
                if source.exists():
                    _copy(source, target.with_name(target.name + suffix))
        except BaseException:
            _remove(target)
            raise
    for old in _backups(path)[:-KEPT]:
        _remove(old)
    return target


def _copy(source: Path, target: Path) -> None:
    os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    shutil.copy2(source, target)


def _remove(backup: Path) -> None:
    for suffix in ("", *files.SIDECARS):
        backup.with_name(backup.name + suffix).unlink(missing_ok=True)


def _backups(path: Path) -> list[Path]:
    """Return the copies, the oldest first: names of one second do not tell."""
    found = [
        file
        for file in path.parent.glob(f"{path.name}.malformed-backup-*")
        if not file.name.endswith(files.SIDECARS)
    ]
    return sorted(found, key=lambda file: file.stat().st_ctime_ns)


def _stamp(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns


def _free_name(path: Path) -> Path:
    name = f"{path.name}.malformed-backup-{datetime.fromtimestamp(clock.now()):%Y%m%d_%H%M%S}"
    target, number = path.with_name(name), 1
    while target.exists():
        number += 1
        target = path.with_name(f"{name}_{number}")
    return target


class Ledger:
    """How many repairs of one state of a file have failed, for all processes."""

    def __init__(self, path: Path) -> None:
        self._file = path.with_name(f"{path.name}.repair-attempts.json")
        self._fingerprint = ":".join(map(str, _stamp(path)))

    @property
    def failures(self) -> int:
        """Failed attempts at the file as it was when the ledger was opened."""
        try:
            entry: Any = json.loads(self._file.read_text())
            is_same = entry["fingerprint"] == self._fingerprint
            return int(entry["failed_attempts"]) if is_same else 0
        except (OSError, ValueError, TypeError, KeyError):  # none, or unreadable
            return 0

    def count_failure(self) -> None:
        """Note one more."""
        entry = {
            "fingerprint": self._fingerprint,
            "failed_attempts": self.failures + 1,
            "last_attempt": datetime.fromtimestamp(clock.now(), UTC).isoformat(),
        }
        self._file.write_text(json.dumps(entry))

    def forget(self) -> None:
        """Start over: the file is healthy."""
        self._file.unlink(missing_ok=True)
