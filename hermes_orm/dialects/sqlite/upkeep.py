"""Maintenance of a SQLite file that runs by itself, outside any unit."""

from __future__ import annotations

import logging
from typing import Any

from hermes_orm.dialects.sqlite import driver as sqlite_driver

logger = logging.getLogger("hermes_orm.sqlite")


def checkpoint(driver: Any, mode: str) -> None:
    """Move WAL content into the database file (`PASSIVE`, `TRUNCATE`); a failure is only logged."""
    try:
        driver.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()
    except sqlite_driver.module().Error as error:
        logger.warning("WAL checkpoint (%s) failed: %s", mode, error)
