"""Maintenance of a SQLite file: checkpoints, its size, and VACUUM."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any, Final

from hermes_orm.dialects.base import Transaction
from hermes_orm.dialects.sqlite import driver as sqlite_driver
from hermes_orm.dialects.upkeep import Upkeep

SMALL_BYTES: Final = 64 * 2**20
"""A file up to this size is rewritten in about a second."""
WORTHWHILE_SHARE: Final = 0.1
"""Of a larger file so much must be free pages."""

logger = logging.getLogger("hermes_orm.sqlite")


def checkpoint(driver: Any, mode: str) -> None:
    """Move WAL content into the database file (`PASSIVE`, `TRUNCATE`); a failure is only logged."""
    try:
        driver.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()
    except sqlite_driver.module().Error as error:
        logger.warning("WAL checkpoint (%s) failed: %s", mode, error)


class SQLiteUpkeep(Upkeep):
    """The database file, without its WAL."""

    def size(self, tx: Transaction) -> int:
        """Return the bytes of the file's pages."""
        return _pragma(tx, "page_count") * _pragma(tx, "page_size")

    def is_worth_vacuuming(self, tx: Transaction) -> bool:
        """Whether the file is small or has many free pages, and its disk has room for a copy.

        VACUUM writes the file anew, and then its pages once more into the journal or the WAL.
        """
        size = self.size(tx)
        free_pages = _pragma(tx, "freelist_count")
        if size > SMALL_BYTES and free_pages < WORTHWHILE_SHARE * _pragma(tx, "page_count"):
            logger.info("no VACUUM: only %d pages of the file are free", free_pages)
            return False
        path = _driver(tx).execute("PRAGMA database_list").fetchone()[2]
        room = shutil.disk_usage(Path(path).parent).free if path else size * 2
        if room < size * 2:
            logger.warning("no VACUUM: it may need %d bytes of disk, %d are free", size * 2, room)
        return room >= size * 2

    def vacuum(self, tx: Transaction) -> None:
        """Rewrite the file, and empty the WAL before and after."""
        driver = _driver(tx)
        driver.commit()  # ends the unit's transaction, in which nothing has happened
        checkpoint(driver, "TRUNCATE")
        driver.execute("VACUUM")
        checkpoint(driver, "TRUNCATE")


def _driver(tx: Transaction) -> Any:
    return tx.connection.connection.driver_connection


def _pragma(tx: Transaction, name: str) -> int:
    return int(_driver(tx).execute(f"PRAGMA {name}").fetchone()[0])
