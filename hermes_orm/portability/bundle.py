"""A private copy of a database file with its sidecars, which are never opened as a database."""

from __future__ import annotations

import os
import shutil
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hermes_orm.dialects.sqlite import files
from hermes_orm.errors import SessionRecoverySafetyError

SIDECARS: Final = ("", "-wal", "-shm", "-journal")
LEAST_HEADROOM: Final = 256 * 1024 * 1024
HEADROOM_SHARE: Final = 0.05

Fingerprint = dict[str, list[int]]
"""Size and time of change, in nanoseconds, of each part that exists."""


@dataclass(frozen=True)
class Bundle:
    """The copied parts of a source."""

    database: Path
    fingerprint: Fingerprint
    """Of the source while it was copied."""


def parts(path: Path) -> list[Path]:
    """Return where a database and its sidecars stand."""
    return [path.with_name(path.name + suffix) for suffix in SIDECARS]


def fingerprint(source: Path) -> Fingerprint:
    """Return what would change if somebody wrote to the source."""
    found = {}
    for part in parts(source):
        if part.exists():
            status = part.stat()
            found[part.name] = [status.st_size, status.st_mtime_ns]
    return found


def copy_bundle(source: Path, folder: Path) -> Bundle:
    """Copy a source into a folder.

    Raises SessionRecoverySafetyError when this process has the source open, or when it changes.
    """
    before = fingerprint(source)
    if source.name not in before:
        raise SessionRecoverySafetyError(f"{source} does not exist: name the damaged file")
    with ExitStack() as stack:
        for name in before:
            if not stack.enter_context(files.untouched(source.with_name(name))):
                raise SessionRecoverySafetyError(
                    f"{source} is open in this process: close the store first"
                )
        for name in before:
            shutil.copyfile(source.with_name(name), folder / name)
    if fingerprint(source) != before:
        raise SessionRecoverySafetyError(
            f"{source} changed while it was copied: end the programs that use it"
        )
    (folder / f"{source.name}-shm").unlink(missing_ok=True)  # it is built from the WAL
    return Bundle(folder / source.name, before)


def check_space(source: Path, work: Path, output: Path | None) -> dict[str, int]:
    """Return the space that is needed and free, in bytes; refuse when it is too little."""
    size = sum(numbers[0] for numbers in fingerprint(source).values())
    headroom = max(LEAST_HEADROOM, int(size * HEADROOM_SHARE))
    needs = {_existing(work): size}
    if output is not None:
        folder = _existing(output.parent)
        same = next((known for known in needs if _device(known) == _device(folder)), folder)
        needs[same] = needs.get(same, 0) + size
    report = {"bundle": size, "headroom": headroom}
    for folder, needed in needs.items():
        free = shutil.disk_usage(folder).free
        report |= {f"needed in {folder}": needed + headroom, f"free in {folder}": free}
        if free < needed + headroom:
            raise SessionRecoverySafetyError(
                f"{folder} has {free:,} bytes free, and {needed + headroom:,} are needed: "
                "make room, or name another work directory"
            )
    return report


def _existing(folder: Path) -> Path:
    folder = folder.absolute()
    while not folder.exists():
        folder = folder.parent
    return folder


def _device(folder: Path) -> int:
    return os.stat(folder).st_dev
