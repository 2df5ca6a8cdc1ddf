"""A copy of a SQLite file that others may write meanwhile."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from hermes_orm import clock
from hermes_orm.dialects.sqlite import driver as sqlite_driver
from hermes_orm.dialects.sqlite import files

PAGES = 1000
"""Copied at a time; writers go on in between."""


def back_up(path: Path, to: Path | None, share: Callable[[int, int], None]) -> Path:
    """Copy the database at `path` to a new file (by default beside it), check it, return its path.

    `share` is told the pages that are done, and all of them. A failure leaves no copy.
    """
    moment = datetime.fromtimestamp(clock.now(), UTC)
    target = to or path.with_name(f"{path.name}.backup-{moment:%Y%m%d-%H%M%S}")
    partial = target.with_name(f"{target.name}.partial")
    if target.exists():
        raise FileExistsError(f"{target} exists: name another file")
    os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    try:
        _copy(path, partial, share)
        partial.rename(target)
    except BaseException:
        for suffix in ("", *files.SIDECARS, "-journal"):
            partial.with_name(partial.name + suffix).unlink(missing_ok=True)
        raise
    return target


def _copy(path: Path, target: Path, share: Callable[[int, int], None]) -> None:
    connect = sqlite_driver.module().connect

    def progress(status: int, remaining: int, total: int) -> None:
        share(total - remaining, total)

    files.check_is_database(str(path))
    with (
        files.claimed(path),
        closing(connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as source,
        closing(connect(str(target), isolation_level=None)) as copy,
    ):
        source.backup(copy, pages=PAGES, progress=progress)
        copy.execute("PRAGMA journal_mode=DELETE")  # one file, whatever the source uses
        (found,) = copy.execute("PRAGMA quick_check(1)").fetchone()
        if found != "ok":
            raise sqlite_driver.module().DatabaseError(f"the file is damaged: {found}")
