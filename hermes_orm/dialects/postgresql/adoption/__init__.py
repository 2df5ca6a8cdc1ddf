"""Adoption of a database of the existing PostgreSQL store: layout 5 becomes revision 0025."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from sqlalchemy import Connection, text

from hermes_orm.dialects.adoption import AdoptionReport
from hermes_orm.dialects.indexing import defer_rebuild
from hermes_orm.dialects.postgresql.adoption import conversion, copies, layout

logger = logging.getLogger("hermes_orm.migrations")

REVISION: Final = "0025"
"""What an adopted database is stamped with; the revisions go on from there."""

STAMP: Final = (
    "CREATE TABLE hermes_alembic_version (version_num VARCHAR(32) NOT NULL "
    "CONSTRAINT hermes_alembic_version_pkc PRIMARY KEY)",
    f"INSERT INTO hermes_alembic_version VALUES ('{REVISION}')",
)


def adopt(connection: Connection, replay: Callable[[Connection, str], None]) -> AdoptionReport:
    """Convert layout 5 to revision 0025 in the caller's transaction, and stamp it.

    `replay` adds what is missing of the schema of a revision. Raises SchemaError, for the caller to
    roll back, when something in the database prevents it.
    """
    layout.lock_tables(connection)
    layout.check_views(connection)
    repaired = {
        "copies of sessions kept": copies.check_sessions(connection),
        **copies.check_messages(connection),
        **conversion.convert(connection, lambda: replay(connection, REVISION)),
    }
    defer_rebuild(connection)
    for statement in STAMP:
        connection.exec_driver_sql(statement)
    is_empty = connection.scalar(text("SELECT count(*) = 0 FROM messages"))
    report = AdoptionReport(
        version=layout.VERSION,
        shape=layout.VERSION,
        start=REVISION,
        repaired_rows={what: count for what, count in repaired.items() if count},
        search="kept" if is_empty else "queued",
    )
    logger.info("adopted a database of the existing PostgreSQL store: %s", report)
    return report
