"""What a database that bears the newest revision lacks of it, and how that is put right."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

from sqlalchemy import Connection, select, text
from sqlalchemy.exc import IntegrityError

from hermes_orm.dialects.postgresql.references import add_reference, references
from hermes_orm.errors import SchemaError
from hermes_orm.models import Base, StateMeta
from hermes_orm.models.meta import COPY_MARK

logger = logging.getLogger("hermes_orm.postgresql")

TITLES = "idx_sessions_title_unique"
"""Useful only while it is unique and leaves out sessions without a title."""
_OURS = "relnamespace = current_schema()::regnamespace"
_MISSING = text(f"""
    SELECT 'column', name FROM (
        SELECT unnest(CAST(:columns AS text[])) EXCEPT
        SELECT relname || '.' || attname FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
        WHERE {_OURS} AND attnum > 0 AND NOT attisdropped
    ) AS columns (name)
    UNION ALL SELECT 'index', name FROM (
        SELECT unnest(CAST(:indexes AS text[])) EXCEPT
        SELECT CAST(relname AS text) FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
        WHERE {_OURS} AND indisvalid
          AND (relname <> '{TITLES}' OR indisunique AND indpred IS NOT NULL)
    ) AS indexes (name)
    UNION ALL SELECT 'reference', name FROM (
        SELECT unnest(CAST(:keys AS text[])) EXCEPT
        SELECT relname || '.' || attname FROM pg_constraint k
        JOIN pg_class ON pg_class.oid = conrelid
        JOIN pg_attribute ON attrelid = conrelid AND attnum = ANY (conkey)
        WHERE {_OURS} AND contype = 'f'
    ) AS keys (name)
    ORDER BY 1, 2
""")
_COPY = select(StateMeta.value).where(StateMeta.key == COPY_MARK)


class Missing(NamedTuple):
    """What is not there, or not in force."""

    columns: tuple[str, ...]
    """As `table.column`."""
    indexes: tuple[str, ...]
    references: tuple[str, ...]
    """As `table.column`."""

    def check_columns(self) -> None:
        """Raise SchemaError when columns or tables are missing: what they held is lost."""
        if self.columns:
            raise SchemaError(
                "the database bears the current revision, but has an incomplete table shape "
                f"({', '.join(self.columns[:5])} missing): nothing was changed; restore a backup, "
                "or have them made anew, empty, by hermes-orm db check --repair"
            )


def missing(connection: Connection) -> Missing:
    """Return what the models describe and the current schema lacks; mostly one query.

    An unfinished copy is to lack references: whoever completes it makes them.
    """
    tables = Base.metadata.sorted_tables
    rows = connection.execute(
        _MISSING,
        {
            "columns": [f"{table.name}.{column.name}" for table in tables for column in table.c],
            "indexes": [str(index.name) for table in tables for index in table.indexes],
            "keys": list(references()),
        },
    ).all()
    kinds = ("column", "index", "reference")
    found = Missing(*(tuple(row[1] for row in rows if row[0] == kind) for kind in kinds))
    if found.references and not found.columns and connection.scalar(_COPY) is not None:
        return found._replace(references=())
    return found


def complete(connection: Connection, replay: Callable[[], None]) -> tuple[str, ...]:
    """Add what is missing, in the caller's transaction; return its names.

    `replay` adds tables, columns and indexes. A reference that rows break holds for new rows only.
    """
    found = missing(connection)
    if TITLES in found.indexes:
        connection.exec_driver_sql(f"DROP INDEX IF EXISTS {TITLES}")
    names = (*found.columns, *found.indexes, *found.references)
    if names:
        replay()
        for name in missing(connection).references:
            _restore(connection, name)
    return names


def _restore(connection: Connection, name: str) -> None:
    add_reference(connection, name, is_validated=False)
    key = references()[name]
    try:
        with connection.begin_nested():
            connection.exec_driver_sql(
                f"ALTER TABLE {key.table.name} VALIDATE CONSTRAINT {key.name}"
            )
    except IntegrityError:
        logger.warning("rows of %s refer to nothing; new rows are checked again", name)
