"""What a SQLite file is and whether it is sound."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from sqlalchemy import Connection

from hermes_orm.config import load_settings
from hermes_orm.dialects.inspection import Finding, Status, Step
from hermes_orm.dialects.sqlite import driver as sqlite_driver
from hermes_orm.dialects.sqlite.adoption.fingerprint import Findings, examine, objects
from hermes_orm.dialects.sqlite.migrating import opened
from hermes_orm.dialects.sqlite.search_ddl import SUBSTRINGS
from hermes_orm.dialects.sqlite.search_settings import defers_appends
from hermes_orm.dialects.sqlite.search_upkeep import SUBSTRINGS_STALE, is_marked
from hermes_orm.errors import SchemaError
from hermes_orm.home import hermes_home
from hermes_orm.location import SqliteLocation
from hermes_orm.models.meta import HEAD_REVISION

T = TypeVar("T")

INDEXES = ("messages_fts", "messages_fts_trigram", "messages_fts_cjk")
LAYOUT_3 = {"messages_fts": "messages_fts_src", "messages_fts_trigram": "messages_fts_trigram_src"}
REFUSE = "nothing: it would be refused"
UPGRADES = {
    "empty": ("empty", "create the newest schema"),
    "head": ("current", "nothing"),
    "unstamped head": ("current", "add the stamp and the own objects"),
}


async def inspect(location: SqliteLocation, action: Callable[[Connection], T]) -> T:
    """Run `action` on a connection that may write: FTS5 takes its check for a change."""

    def run() -> T:
        with opened(location.path) as connection:
            return action(connection)

    return await asyncio.to_thread(run)


def describe(connection: Connection) -> Status:
    """Return what the file is; one that is refused is described as far as it can be read."""
    driver: Any = connection.connection.driver_connection
    try:
        findings = examine(driver)
    except SchemaError as error:
        return _status(driver, "refused", Findings("old"), str(error), REFUSE)
    kind, upgrade = UPGRADES.get(
        findings.kind,
        ("older", f"back up the file, then migrate it from {findings.revision} to {HEAD_REVISION}"),
    )
    shape = f"shape of version {findings.shape}" if findings.shape else "no tables"
    lacks = f", missing: {', '.join(findings.holes)}" if findings.holes else ""
    return _status(driver, kind, findings, f"{shape}{lacks}", upgrade)


def _status(driver: Any, kind: Any, findings: Findings, fingerprint: str, upgrade: str) -> Status:
    (pages,) = driver.execute("PRAGMA page_count").fetchone()
    (size,) = driver.execute("PRAGMA page_size").fetchone()
    (mode,) = driver.execute("PRAGMA journal_mode").fetchone()
    tables = sorted(
        name for name in objects(driver, "table") if "_fts" not in name and "fts_" not in name
    )
    rows = {name: _number(driver, f'SELECT count(*) FROM "{name}"') for name in tables}
    return Status(
        kind=kind,
        revision=findings.stamp,
        version=findings.version,
        fingerprint=fingerprint,
        upgrade=upgrade,
        server=f"SQLite {sqlite_driver.module().sqlite_version}, journal mode {mode}",
        bytes=pages * size,
        rows=rows,
        to_be_indexed=_to_be_indexed(driver) if "messages" in rows else 0,
    )


def _to_be_indexed(driver: Any) -> int:
    keys = "SELECT value FROM state_meta WHERE key = 'fts_rebuild_{}'"
    if "state_meta" not in objects(driver, "table"):
        return 0
    last = _number(driver, keys.format("high_water"))
    done = _number(driver, keys.format("progress"))
    return _number(driver, f"SELECT count(*) FROM messages WHERE id > {done} AND id <= {last}")


def _number(driver: Any, query: str) -> int:
    row = driver.execute(query).fetchone()
    return int(row[0] or 0) if row else 0


def restore(connection: Connection, replay: Callable[[], None]) -> None:
    """Create the tables, columns and indexes that are missing; no table is made anew for a key."""
    replay()


def integrity(connection: Connection, step: Step) -> Iterator[Finding]:
    """Yield which pages and indexes of the file are damaged, whatever the file is."""
    step("integrity of the file")
    driver: Any = connection.connection.driver_connection
    errors = sqlite_driver.module()
    try:
        for (row,) in driver.execute("PRAGMA integrity_check(20)"):
            if row != "ok":
                yield Finding("integrity", str(row))
    except errors.DatabaseError as error:  # of a table whose first page is damaged
        if isinstance(error, errors.OperationalError):
            raise
        yield Finding("integrity", str(error))


def check(connection: Connection, step: Step) -> Iterator[Finding]:
    """Yield what is wrong in a sound file; the caller rolls back."""
    driver: Any = connection.connection.driver_connection
    step("references")
    broken: dict[str, int] = {}
    for table, _, target, _ in driver.execute("PRAGMA foreign_key_check"):
        broken[f"{table} -> {target}"] = broken.get(f"{table} -> {target}", 0) + 1
    for tables, count in broken.items():
        yield Finding("references", f"{count} rows of {tables}: no target")
    yield from _search_findings(connection, step)


def _search_findings(connection: Connection, step: Step) -> Iterator[Finding]:
    """Yield what is wrong with the indexes that the file is set to have (`search_settings`)."""
    driver: Any = connection.connection.driver_connection
    is_retired = is_marked(connection, SUBSTRINGS_STALE)
    indexes = [name for name in INDEXES if not (is_retired and name == SUBSTRINGS.name)]
    definitions = dict(driver.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'table'"))
    for index, source in LAYOUT_3.items():
        if index not in indexes:
            continue
        if index not in definitions:
            yield Finding("search", f"{index} is missing")
        elif source not in definitions[index]:
            yield Finding("search", f"{index} has the layout of an older version")
    if left := _to_be_indexed(driver):
        is_deferred = load_settings(hermes_home()).sqlite.search_indexing == "deferred"
        if not (is_deferred or defers_appends(connection)):
            yield Finding("search", f"{left} messages are still to be indexed")
        return  # an index that is not complete differs from its source
    for index in (name for name in indexes if name in definitions):
        step(f"search index {index}")
        try:
            driver.execute(f"INSERT INTO {index}({index}, rank) VALUES ('integrity-check', 1)")
        except sqlite_driver.module().Error as error:
            yield Finding("search", f"{index}: {error}")
