"""Which schema a SQLite file holds, and what opening does about it."""

from __future__ import annotations

import sqlite3
from typing import Any

from hermes_orm.dialects.sqlite import ddl
from hermes_orm.dialects.sqlite.adoption.fingerprint import (
    STAMP_TABLE,
    Findings,
    examine,
    is_whole,
)
from hermes_orm.dialects.sqlite.recency_ddl import show_recency
from hermes_orm.dialects.sqlite.transaction import HeldConnection
from hermes_orm.errors import MigrationRequiredError, SchemaError
from hermes_orm.models.meta import HEAD_REVISION


def is_current(driver: Any) -> bool:
    """Whether the file is stamped with the schema that this code needs; one read."""
    try:
        stamps = driver.execute("SELECT version_num FROM hermes_alembic_version").fetchall()
    except Exception as error:
        if "no such table" not in str(error):
            raise
        return False
    return bool(stamps == [(HEAD_REVISION,)])


def _is_complete(driver: Any) -> bool:
    """Whether the file is what its stamp says; one more read."""
    return is_current(driver) and is_whole(driver)


def ensure_schema(held: HeldConnection) -> None:
    """Create the schema in an empty file, or add what is ours to a version-31 file.

    A complete file costs two reads.
    """
    if is_current(held.driver) and _has_own_objects(held.driver):
        return
    held.begin("BEGIN IMMEDIATE")
    try:
        if not is_current(held.driver) and examine(held.driver).kind == "empty":
            held.driver.execute(f"DROP TABLE IF EXISTS {STAMP_TABLE}")  # left by a downgrade
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


def check_writable(driver: Any, path: str, *, auto_migrate: bool) -> None:
    """Refuse a file of another schema before anything in it changes, be it the journal mode.

    An older schema is a MigrationRequiredError where the store may bring it up to date by itself.
    """
    if _is_complete(driver):
        return
    findings = examine(driver)
    if findings.kind == "old":
        kind = MigrationRequiredError if auto_migrate else SchemaError
        raise kind(_needs_migration(findings, path))


def prepare_reading(held: HeldConnection, path: str) -> None:
    """Refuse a file that a read-only store cannot use; a version-31 file needs no stamp.

    What is ours and missing in the file is computed, for this connection only.
    """
    if not _is_complete(held.driver):
        findings = examine(held.driver)
        if findings.kind == "empty":
            raise sqlite3.OperationalError(
                "no such table: sessions (the file is empty; a read-only store creates nothing: "
                "open it once for writing)"
            )
        if findings.kind == "old":
            raise SchemaError(_needs_migration(findings, path))
    if not _has_own_objects(held.driver):
        show_recency(held.connection)
        held.rollback()


def _needs_migration(findings: Findings, path: str) -> str:
    return (
        f"the file holds {findings}, and revision {HEAD_REVISION} is needed; a store that is "
        "read-only, or has database.sqlite.auto_migrate off, does not migrate: "
        f"nothing was changed; run hermes-orm db upgrade {path}"
    )
