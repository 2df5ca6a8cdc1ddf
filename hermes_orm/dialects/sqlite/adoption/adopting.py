"""Bringing an existing file to a newer schema, inside one transaction."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, insert

from hermes_orm.dialects.adoption import HASTY, Adoption, AdoptionReport, SearchState
from hermes_orm.dialects.creation import create_tables
from hermes_orm.dialects.indexing import CJK_REBUILD, REBUILD, clear_rebuild
from hermes_orm.dialects.sqlite import ddl, search_upkeep
from hermes_orm.dialects.sqlite.adoption import census
from hermes_orm.dialects.sqlite.adoption.fingerprint import STAMP_TABLE, Findings, objects
from hermes_orm.dialects.sqlite.adoption.original import Original
from hermes_orm.dialects.sqlite.adoption.verification import Inventory, damage, verify
from hermes_orm.dialects.sqlite.opening import is_current
from hermes_orm.dialects.sqlite.search_ddl import CJK
from hermes_orm.models import SessionRecency

REBUILT_AT_ONCE = 2000
"""Up to so many messages are indexed within the migration; more are left to `fts_rebuild_step`."""


@dataclass(frozen=True)
class Prepared:
    """A file that is ready for the revisions, and what it was before."""

    findings: Findings
    holes: frozenset[str]
    lasting: Mapping[str, int]


def lasting_tables(connection: Connection, adoption: Adoption) -> dict[str, int]:
    """Return the tables whose rows a hasty migration leaves alone, with their first pages.

    A column may be added; where rows must be repaired, the table is made anew.
    """
    if not adoption.is_hasty or not _is_large(connection):
        return {}
    driver: Any = connection.connection.driver_connection
    return {"messages": census.root(driver, "messages")}


def prepare(
    connection: Connection, findings: Findings, adoption: Adoption, lasting: Mapping[str, int]
) -> Prepared:
    """Bring a file into the shape of the revision that it enters at.

    The caller began the transaction, with foreign keys not enforced, and ends it: an error of this
    or of `finish` is to undo everything.
    """
    driver: Any = connection.connection.driver_connection
    shape = census.schema(driver)
    if lasting:
        connection.info[HASTY] = True
    _drop_derived(connection)
    if findings.stamp is None:
        adoption.replay(connection, findings.revision)
        _stamp(connection, findings.revision)
    return Prepared(findings, frozenset(census.schema(driver) - shape), lasting)


def finish(
    connection: Connection, prepared: Prepared, original: Future[Original]
) -> AdoptionReport:
    """Add what is derived to a file that the revisions have changed; verify and describe it."""
    driver: Any = connection.connection.driver_connection
    findings = prepared.findings
    is_head = is_current(driver)
    if is_head:
        ddl.complete_head(connection)
    search = _complete_search(connection) if is_head else "kept"
    unchanged = {
        name for name, page in prepared.lasting.items() if census.root(driver, name) == page
    }
    found = damage(driver, census.tables(driver) - unchanged)
    after = Inventory.take(driver, unchanged)
    before, undecodable, original_damage = original.result()
    verify(driver, before, after, found + (original_damage if unchanged else []), is_head=is_head)
    own = (STAMP_TABLE, SessionRecency.__tablename__)
    return AdoptionReport(
        version=findings.version,
        shape=findings.shape,
        start=findings.revision,
        holes=tuple(sorted(name for name in prepared.holes if name.partition(".")[0] not in own)),
        repaired_rows=census.repaired_rows(before.repairs, after.repairs),
        violations=tuple(f"{name}: {number}" for name, number in sorted(after.violations.items())),
        undecodable=undecodable,
        search=search,
    )


def _drop_derived(connection: Connection) -> None:
    """Drop what would follow, or stand in the way of, changes of the tables: it is built anew."""
    if _is_large(connection):
        search_upkeep.put_search_aside(connection)
        search_upkeep.drop_search(connection, [CJK])
    else:
        search_upkeep.drop_search(connection)
    present = objects(connection.connection.driver_connection, "trigger")
    for name in ddl.RECENCY_TRIGGERS & present:
        connection.exec_driver_sql(f"DROP TRIGGER {name}")
    connection.exec_driver_sql(f"DROP TABLE IF EXISTS {SessionRecency.__tablename__}")


def _stamp(connection: Connection, revision: str) -> None:
    stamps = next(table for table in ddl.OWN_TABLES if table.name == STAMP_TABLE)
    connection.exec_driver_sql(f"DROP TABLE IF EXISTS {STAMP_TABLE}")
    create_tables(connection, [stamps])
    connection.execute(insert(stamps), {"version_num": revision})
    connection.exec_driver_sql("DELETE FROM schema_version")
    connection.exec_driver_sql("INSERT INTO schema_version VALUES (?)", (int(revision[:4]),))


def _complete_search(connection: Connection) -> SearchState:
    """Fill the index of layout 3, or leave that to later steps when it would take long."""
    is_large = _is_large(connection)
    if not is_large:
        search_upkeep.restore_search(connection)
    elif not search_upkeep.is_marked(connection, REBUILD.high_water):
        search_upkeep.defer_search(connection)
    clear_rebuild(connection, CJK_REBUILD)  # opening makes that index anew, where it can be had
    search_upkeep.unmark(connection, search_upkeep.CJK_STALE)
    if not search_upkeep.present(search_upkeep.objects(connection)):
        return "unavailable"
    search_upkeep.mark(connection, search_upkeep.LAYOUT, search_upkeep.NEWEST_LAYOUT)
    return "queued" if is_large else "rebuilt"


def _is_large(connection: Connection) -> bool:
    some = f"SELECT 1 FROM messages LIMIT 1 OFFSET {REBUILT_AT_ONCE}"
    return connection.exec_driver_sql(some).first() is not None
