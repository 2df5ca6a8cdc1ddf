"""The file as it was, copied and counted while its migration is already under way."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from hermes_orm.dialects.sqlite import driver as sqlite_driver
from hermes_orm.dialects.sqlite.adoption import census
from hermes_orm.dialects.sqlite.adoption.backup import Backup
from hermes_orm.dialects.sqlite.adoption.verification import Inventory, damage


class Original(NamedTuple):
    """What the file held, how many values of each JSON column were no JSON, and what is damaged."""

    inventory: Inventory
    undecodable: dict[str, int]
    damage: list[str]


@contextmanager
def original(
    path: Path, backup: Backup | None, lasting: Iterable[str]
) -> Iterator[Future[Original]]:
    """Have what is committed at `path` copied and counted on a thread of its own; yield the count.

    The tables of `lasting` are checked for damage as well.

    The caller holds the write lock, and changes nothing before it has the future. Until it commits,
    a reader sees the file as it was; the commit waits for that reader.
    """
    is_reading = threading.Event()
    with ThreadPoolExecutor(1, "hermes-orm original") as thread:
        counted = thread.submit(_observe, path, backup, lasting, is_reading)
        is_reading.wait()
        yield counted


def _observe(
    path: Path, backup: Backup | None, lasting: Iterable[str], is_reading: threading.Event
) -> Original:
    connect = sqlite_driver.module().connect
    uri = f"{path.absolute().as_uri()}?mode=rw"
    try:
        source = connect(uri, uri=True, isolation_level=None)
        # One snapshot to the end: a lock given up is not had again while the writer spills pages.
        source.execute("BEGIN")
        source.execute("SELECT count(*) FROM sqlite_master").fetchone()
    finally:
        is_reading.set()
    with closing(source):
        if backup is not None:
            backup.copy(source)
        found = damage(source, lasting)
        return Original(Inventory.take(source), census.undecodable(source), found)
