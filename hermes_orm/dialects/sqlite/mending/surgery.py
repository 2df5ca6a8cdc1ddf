"""What can be done about a damaged file, tried on a copy; canonical tables are never changed."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from sqlalchemy.exc import DBAPIError

from hermes_orm.dialects.sqlite import driver as sqlite_driver
from hermes_orm.dialects.sqlite.mending import health
from hermes_orm.dialects.sqlite.migrating import opened
from hermes_orm.dialects.sqlite.search_ddl import CJK
from hermes_orm.dialects.sqlite.search_upkeep import INDEXES, restore_search

logger = logging.getLogger("hermes_orm.sqlite")


def operate(path: Path, problem: str) -> str | None:
    """Try one strategy after another; return the one after which the file is healthy, or None."""
    for strategy, act in STRATEGIES:
        if act is _recreate_fts and "fts" not in problem.lower():
            continue
        try:
            act(path)
        except (
            DBAPIError,
            sqlite3.Error,
            sqlite_driver.module().Error,
        ) as error:
            # The next one may help.
            logger.debug("%s: %s", strategy, sqlite_driver.as_standard(error))
        left = health.problem(path)
        if left is None:
            return strategy
        problem = left
    return None


def _rebuild_fts(path: Path) -> None:
    with closing(_connect(path)) as driver:
        for name in health.search_tables(driver):
            driver.execute(f"INSERT INTO {name} ({name}) VALUES ('rebuild')")


def _recreate_fts(path: Path) -> None:
    with opened(path) as connection, connection.begin():
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        restore_search(connection)


def _reindex(path: Path) -> None:
    with closing(_connect(path)) as driver:
        driver.execute("REINDEX")


def _remove_duplicates(path: Path) -> None:
    _change_catalogue(
        path,
        "DELETE FROM sqlite_master WHERE rowid NOT IN "
        "(SELECT min(rowid) FROM sqlite_master GROUP BY type, name)",
    )


def _drop_fts(path: Path) -> None:
    """Remove the search objects from the catalogue and their pages; an opening builds them anew."""
    triggers = [name for index in (*INDEXES, CJK) for name in index.triggers]
    views = [index.view for index in (*INDEXES, CJK)]
    names = ", ".join(f"'{name}'" for name in (*triggers, *views))
    _change_catalogue(
        path,
        "DELETE FROM sqlite_master WHERE name GLOB 'messages_fts*' "
        f"OR tbl_name GLOB 'messages_fts*' OR name IN ({names})",
    )
    with closing(_connect(path)) as driver:
        driver.execute("VACUUM")


def _change_catalogue(path: Path, statement: str) -> None:
    with closing(_connect(path)) as driver:
        driver.execute("PRAGMA writable_schema = 1")  # an unreadable catalogue is no error now
        driver.execute("BEGIN IMMEDIATE")
        driver.execute(statement)
        driver.commit()


def _connect(path: Path) -> Any:
    return sqlite_driver.module().connect(str(path), isolation_level=None)


STRATEGIES: Final[tuple[tuple[str, Callable[[Path], None]], ...]] = (
    ("rebuild_fts", _rebuild_fts),
    ("rebuild_fts", _recreate_fts),
    ("reindex_btree", _reindex),
    ("dedup_schema", _remove_duplicates),
    ("drop_fts_rebuild", _drop_fts),
)
