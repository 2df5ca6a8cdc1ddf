"""Which schema a SQLite file holds, and what opening does about it."""

from __future__ import annotations

import sqlite3
from typing import Any

from hermes_orm.dialects.sqlite import ddl
from hermes_orm.dialects.sqlite.recency_ddl import show_recency
from hermes_orm.dialects.sqlite.transaction import HeldConnection
from hermes_orm.errors import SchemaError
from hermes_orm.models.meta import HEAD_REVISION, SCHEMA_VERSION

FINGERPRINT = {
    "sessions": {"id", "source", "user_id", "model", "parent_session_id", "started_at", "ended_at"},
    "messages": {"id", "session_id", "role", "content", "timestamp", "tool_calls"},
    "schema_version": {"version"},
}
"""Tables and columns that every Hermes file has since version 1."""
NEWEST = ("messages", "message_uid")
"""The column by which a version-31 file is told from one whose number runs ahead."""


def is_current(driver: Any) -> bool:
    """Whether the file is stamped with the schema that this code needs; one read."""
    try:
        stamps = driver.execute("SELECT version_num FROM hermes_alembic_version").fetchall()
    except Exception as error:
        if "no such table" not in str(error):
            raise
        return False
    if stamps == [(HEAD_REVISION,)]:
        return True
    known = ", ".join(str(row[0]) for row in stamps) or "none"
    raise SchemaError(
        f"the file holds schema revision {known}, this version of hermes_orm needs "
        f"{HEAD_REVISION}: nothing was changed; use the version of hermes_orm that wrote the file, "
        "or migrate it"
    )


def ensure_schema(held: HeldConnection) -> None:
    """Create the schema in an empty file, or add what is ours to a version-31 file.

    A complete file costs two reads.
    """
    if is_current(held.driver) and _has_own_objects(held.driver):
        return
    held.begin("BEGIN IMMEDIATE")
    try:
        if not is_current(held.driver) and recognise(held.driver) == "empty":
            ddl.create_head(held.connection)
        else:  # another process may have been first: then there is nothing left to do
            ddl.complete_head(held.connection)
        held.commit()
    except BaseException:
        held.rollback()
        raise


def _has_own_objects(driver: Any) -> bool:
    names = {row[0] for row in driver.execute("SELECT name FROM sqlite_master")}
    return names >= ddl.OWN_OBJECTS


def check_writable(driver: Any) -> None:
    """Refuse a file of another schema before anything in it changes, be it the journal mode."""
    if not is_current(driver):
        recognise(driver)


def prepare_reading(held: HeldConnection) -> None:
    """Refuse a file that a read-only store cannot use; a version-31 file needs no stamp.

    What is ours and missing in the file is computed, for this connection only.
    """
    if not is_current(held.driver) and recognise(held.driver) == "empty":
        raise sqlite3.OperationalError(
            "no such table: sessions (the file is empty; a read-only store creates nothing: "
            "open it once for writing)"
        )
    if not _has_own_objects(held.driver):
        show_recency(held.connection)
        held.rollback()


def recognise(driver: Any) -> str:
    """Return `empty` or `current`; raise SchemaError for any other content."""
    tables = {
        row[0]
        for row in driver.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT GLOB 'sqlite_*'"
        )
    }
    if not tables:
        return "empty"
    for table, columns in FINGERPRINT.items():
        if not columns <= _columns(driver, table):
            raise SchemaError(
                "the file is not a Hermes state database "
                f"(table {table} is missing or differs): nothing was changed; choose another path"
            )
    versions = [row[0] for row in driver.execute("SELECT version FROM schema_version LIMIT 2")]
    if len(versions) != 1 or not isinstance(versions[0], int):
        raise SchemaError(
            "table schema_version must hold exactly one whole number: nothing was changed; "
            "restore a backup, or migrate the file"
        )
    if versions[0] > SCHEMA_VERSION:
        raise SchemaError(
            f"the file has schema version {versions[0]}, newer than {SCHEMA_VERSION}: "
            "nothing was changed; update hermes_orm"
        )
    if versions[0] < SCHEMA_VERSION or NEWEST[1] not in _columns(driver, NEWEST[0]):
        raise SchemaError(
            f"the file has schema version {versions[0]} and needs a migration to {SCHEMA_VERSION}: "
            "nothing was changed; this version of hermes_orm cannot migrate older files yet"
        )
    return "current"


def _columns(driver: Any, table: str) -> set[str]:
    return {row[1] for row in driver.execute(f"PRAGMA table_info({table})")}
