"""Files whose beginning was overwritten with NUL bytes: put aside, so that the store can go on."""

from __future__ import annotations

import asyncio
import logging
import os
from datetime import datetime
from pathlib import Path

from hermes_orm import clock
from hermes_orm.dialects.sqlite import files
from hermes_orm.error_causes import record_init_error

logger = logging.getLogger("hermes_orm.sqlite")

LOCK_SECONDS = 5.0


async def is_zeroed_state_db(
    path: str | os.PathLike[str], *, probe_bytes: int = 100, force: bool = False
) -> bool:
    """Whether a file is not empty and begins with NUL bytes only.

    False for a file that this process has open: to look at it would drop SQLite's locks. `force`
    looks nevertheless.
    """
    return await asyncio.to_thread(is_zeroed, path, probe_bytes, force)


def is_zeroed(path: str | os.PathLike[str], probe_bytes: int = 100, force: bool = False) -> bool:
    """Like `is_zeroed_state_db`, for code on a thread."""
    if not force:
        return files.content(path, probe_bytes) == "zeroed"
    try:
        with Path(path).open("rb", buffering=0) as file:
            head = file.read(max(len(files.MAGIC), probe_bytes))
    except OSError:
        return False
    return head != b"" and not head.strip(b"\0")


async def quarantine_zeroed_state_db(path: str | os.PathLike[str]) -> Path | None:
    """Rename a zeroed file and its side files; return its new path.

    None when there is nothing to do, or no more, or when it can't be done.
    """
    return await asyncio.to_thread(put_aside, path)


def put_aside(path: str | os.PathLike[str]) -> Path | None:
    """Like `quarantine_zeroed_state_db`, for code on a thread."""
    path = Path(path)
    if not is_zeroed(path):
        return None
    try:
        with files.alone(path, "quarantine", LOCK_SECONDS) as is_mine:
            if not is_mine:
                logger.error("%s: another process has been moving it for too long", path)
                return None
            return _rename(path) if is_zeroed(path) else None
    except OSError as error:
        logger.error("%s holds only NUL bytes and can't be moved: %s", path, error.strerror)
        return None


def _rename(path: Path) -> Path:
    target = _free_name(path)
    path.rename(target)
    for suffix in files.SIDECARS:
        sidecar = path.with_name(path.name + suffix)
        if sidecar.exists():
            sidecar.rename(target.with_name(target.name + suffix))
    return target


def _free_name(path: Path) -> Path:
    moment = f"{datetime.fromtimestamp(clock.now()):%Y%m%d-%H%M%S}"
    stem = f"{path.name}.zeroed-{moment}-{os.getpid()}"
    target, number = path.with_name(f"{stem}.bak"), 1
    while target.exists():
        number += 1
        target = path.with_name(f"{stem}-{number}.bak")
    return target


def replace_zeroed(path: Path) -> None:
    """Make way for a new database, if a file is zeroed, and report what was done."""
    target = put_aside(path)
    if target is not None:
        size = target.stat().st_size
        report = (
            f"{path} held only NUL bytes ({size} bytes): it was moved to {target.name}, and a new "
            f"database is created; restore a snapshot from {path.parent / 'state-snapshots'} "
            "with 'hermes snapshot restore' if there is one"
        )
        logger.error("%s", report)
        record_init_error(report)
