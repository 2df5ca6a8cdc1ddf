"""What a PostgreSQL database is and whether it is sound."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection, func, select, text

from hermes_orm.dialects.indexing import REBUILD
from hermes_orm.dialects.inspection import Finding, Status, Step
from hermes_orm.dialects.postgresql import opening, shape
from hermes_orm.errors import SchemaError
from hermes_orm.models import Message, MessageSearch, StateMeta
from hermes_orm.models.meta import HEAD_REVISION

SIZES = text("""
    SELECT c.relname, pg_total_relation_size(c.oid), c.reltuples FROM pg_class c
    WHERE c.relkind = 'r' AND c.relnamespace = current_schema()::regnamespace ORDER BY 1
""")
INVALID = text("""
    SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
    WHERE NOT i.indisvalid AND c.relnamespace = current_schema()::regnamespace ORDER BY 1
""")
UNCHECKED = text("""
    SELECT conname FROM pg_constraint
    WHERE NOT convalidated AND connamespace = current_schema()::regnamespace ORDER BY 1
""")
REFUSE = "nothing: it would be refused"
VERSION = text("SELECT version FROM schema_version LIMIT 1")


def describe(connection: Connection) -> Status:
    """Return what the database is; one that is refused is described as far as it can be read."""
    sizes = connection.execute(SIZES).all()
    tables = {row[0] for row in sizes}
    status: dict[str, Any] = {
        "revision": None,
        "version": connection.scalar(VERSION) if "schema_version" in tables else None,
        "server": f"PostgreSQL {connection.scalar(text('SHOW server_version'))}",
        "bytes": sum(row[1] for row in sizes),
        "rows": {row[0]: max(0, int(row[2])) for row in sizes},
    }
    try:
        found = opening.recognise(connection)
    except SchemaError as error:
        return Status("refused", fingerprint=str(error), upgrade=REFUSE, **status)
    if found == "empty":
        return Status("empty", fingerprint="no tables", upgrade="create the schema", **status)
    if found == opening.ADOPTABLE:
        upgrade = f"adopt it in place, then migrate it to {HEAD_REVISION}"
        return Status("older", fingerprint=opening.ADOPTABLE_NAME, upgrade=upgrade, **status)
    status["revision"] = found
    if found != HEAD_REVISION:
        upgrade = f"migrate it from {found} to {HEAD_REVISION}"
        return Status("older", fingerprint=f"revision {found}", upgrade=upgrade, **status)
    unindexed = _to_be_indexed(connection)
    return Status(
        "current",
        fingerprint=f"revision {found}",
        upgrade="nothing",
        to_be_indexed=unindexed,
        **status,
    )


def _to_be_indexed(connection: Connection) -> int:
    if not connection.scalar(select(StateMeta.key).where(StateMeta.key == REBUILD.high_water)):
        return 0
    entries = select(func.count()).select_from(MessageSearch)
    messages = select(func.count()).select_from(Message)
    return (connection.scalar(messages) or 0) - (connection.scalar(entries) or 0)


def restore(connection: Connection, replay: Callable[[], None]) -> None:
    """Create the tables, columns, indexes and references that are missing."""
    shape.complete(connection, replay)


def integrity(connection: Connection, step: Step) -> list[Finding]:
    """Return nothing: the server has no question that reads all pages."""
    return []


def check(connection: Connection, step: Step) -> list[Finding]:
    """Return what is damaged in the database."""
    step("indexes and references")
    findings = [
        Finding("integrity", f"index {name} is invalid: REINDEX INDEX CONCURRENTLY {name}")
        for name in connection.scalars(INVALID)
    ]
    findings += [
        Finding("references", f"constraint {name} was never validated")
        for name in connection.scalars(UNCHECKED)
    ]
    step("search index")
    missing = (
        select(func.count())
        .select_from(Message)
        .outerjoin(MessageSearch, MessageSearch.message_id == Message.id)
        .where(MessageSearch.message_id.is_(None))
    )
    if count := connection.scalar(missing):
        findings.append(Finding("search", f"{count} messages are still to be indexed"))
    return findings
