"""What the revisions do on SQLite only. A function is never edited once it is released."""

from sqlalchemy import Connection

from hermes_orm.dialects.recency import fill_recency
from hermes_orm.dialects.sqlite.display_ddl import DISPLAY_TRIGGERS, create_display_triggers
from hermes_orm.dialects.sqlite.frozen.catalogue import (
    columns,
    has_foreign_key,
    has_index,
    is_big,
    patient,
    primary_key,
    triggers_of,
)
from hermes_orm.dialects.sqlite.frozen.rebuilding import (
    add_foreign_key,
    drop_columns,
    require_value,
)
from hermes_orm.dialects.sqlite.frozen.search import establish_search, pause_search
from hermes_orm.dialects.sqlite.recency_ddl import RECENCY_TRIGGERS, create_recency_triggers

__all__ = [
    "INSERTION_ORDER",
    "NEW_UID",
    "NEW_UUID",
    "NOW",
    "OCTETS",
    "SINGLE_KEY_NULLABLE",
    "add_foreign_key",
    "columns",
    "create_derived_0031",
    "create_triggers_0030",
    "drop_columns",
    "drop_derived_0031",
    "drop_triggers_0030",
    "establish_search",
    "fill_recency",
    "has_foreign_key",
    "has_index",
    "is_big",
    "patient",
    "pause_search",
    "primary_key",
    "require_value",
    "triggers_of",
]

SINGLE_KEY_NULLABLE = True
"""Other programs declare a key of one column without NOT NULL."""

INSERTION_ORDER = "rowid"
"""Rows in the order in which they were inserted."""

NEW_UID = "lower(hex(randomblob(16)))"
"""32 random hex digits."""

NEW_UUID = (
    "lower(hex(randomblob(4)) || '-' || hex(randomblob(2)) || '-4' "
    "|| substr(hex(randomblob(2)), 2) || '-a' || substr(hex(randomblob(2)), 2) "
    "|| '-' || hex(randomblob(6)))"
)
"""A random UUID as text."""

NOW = "strftime('%Y-%m-%dT%H:%M:%f+00:00', 'now')"
"""The time in ISO form, UTC."""

WRITERS_GO_ON = False
"""A migration is one transaction, which holds the write lock."""

OCTETS = "CAST({text} AS BLOB)"
"""The UTF-8 of a text, also when it is none."""

_UID_TRIGGER = "messages_message_uid_insert"


def create_triggers_0030(connection: Connection) -> None:
    """Create the triggers that keep the order of display, also over an earlier form of them."""
    create_display_triggers(connection, DISPLAY_TRIGGERS - {_UID_TRIGGER})


def drop_triggers_0030(connection: Connection) -> None:
    """Drop the triggers of revision 0030."""
    _drop_triggers(connection, DISPLAY_TRIGGERS - {_UID_TRIGGER})


def create_derived_0031(connection: Connection) -> None:
    """Create the trigger that gives uids, and what keeps the recency."""
    create_display_triggers(connection, {_UID_TRIGGER})
    create_recency_triggers(connection)


def drop_derived_0031(connection: Connection) -> None:
    """Drop what revision 0031 created."""
    _drop_triggers(connection, RECENCY_TRIGGERS | {_UID_TRIGGER})


def _drop_triggers(connection: Connection, names: frozenset[str]) -> None:
    for name in sorted(names):
        connection.exec_driver_sql(f"DROP TRIGGER IF EXISTS {name}")
