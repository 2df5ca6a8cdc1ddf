"""What the revisions do on PostgreSQL only. A function is never edited once it is released."""

from collections.abc import Mapping

from sqlalchemy import Connection

from hermes_orm.dialects.postgresql.delegations_ddl import (
    add_delegation_leases,
    drop_delegation_leases,
)
from hermes_orm.dialects.postgresql.frozen.catalogue import (
    columns,
    has_foreign_key,
    has_index,
    is_big,
    patient,
    primary_key,
    triggers_of,
)
from hermes_orm.dialects.postgresql.markers_ddl import create_json_reader
from hermes_orm.dialects.postgresql.recency_ddl import RECENCY_TRIGGERS, create_recency_triggers
from hermes_orm.dialects.postgresql.search_ddl import SEARCH_TRIGGERS, create_search_triggers
from hermes_orm.dialects.postgresql.trigram_ddl import TRIGRAM_INDEXES, create_trigram_indexes
from hermes_orm.dialects.recency import fill_recency

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

SINGLE_KEY_NULLABLE = False
"""A primary key is NOT NULL in any case, and the server refuses NULL beside it."""

INSERTION_ORDER = "id"
"""The order in which rows were inserted is not known here: that of their keys."""

NEW_UID = "replace(CAST(gen_random_uuid() AS text), '-', '')"
"""32 random hex digits."""

NEW_UUID = "CAST(gen_random_uuid() AS text)"
"""A random UUID as text."""

NOW = "to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US') || '+00:00'"
"""The time in ISO form, UTC."""

WRITERS_GO_ON = True
"""An index of a large table is built while others write."""

OCTETS = "convert_to({text}, 'UTF8')"
"""The UTF-8 of a text."""

_SEARCH_0031 = (
    """
    CREATE TABLE IF NOT EXISTS message_search (
        message_id BIGINT NOT NULL CONSTRAINT message_search_pkey PRIMARY KEY,
        vec TSVECTOR NOT NULL,
        doc_len INTEGER NOT NULL,
        search_text TEXT COLLATE "C"
    )
    """,
    "CREATE INDEX IF NOT EXISTS idx_message_search_vec ON message_search USING gin (vec)",
)

_ON_DEMAND_0031 = (
    """
    CREATE TABLE IF NOT EXISTS telegram_dm_topic_mode (
        profile_name TEXT COLLATE "C" NOT NULL DEFAULT 'default',
        chat_id TEXT COLLATE "C" NOT NULL,
        user_id TEXT COLLATE "C" NOT NULL,
        enabled INTEGER NOT NULL DEFAULT 1,
        activated_at DOUBLE PRECISION NOT NULL,
        updated_at DOUBLE PRECISION NOT NULL,
        has_topics_enabled INTEGER,
        allows_users_to_create_topics INTEGER,
        capability_checked_at DOUBLE PRECISION,
        intro_message_id TEXT COLLATE "C",
        pinned_message_id TEXT COLLATE "C",
        CONSTRAINT telegram_dm_topic_mode_pkey PRIMARY KEY (profile_name, chat_id)
    )
    """,
    """
    CREATE TABLE IF NOT EXISTS telegram_dm_topic_bindings (
        profile_name TEXT COLLATE "C" NOT NULL DEFAULT 'default',
        chat_id TEXT COLLATE "C" NOT NULL,
        thread_id TEXT COLLATE "C" NOT NULL,
        user_id TEXT COLLATE "C" NOT NULL,
        session_key TEXT COLLATE "C" NOT NULL,
        session_id TEXT COLLATE "C" NOT NULL,
        managed_mode TEXT COLLATE "C" NOT NULL DEFAULT 'auto',
        linked_at DOUBLE PRECISION NOT NULL,
        updated_at DOUBLE PRECISION NOT NULL,
        CONSTRAINT telegram_dm_topic_bindings_pkey PRIMARY KEY (profile_name, chat_id, thread_id),
        CONSTRAINT fk_telegram_dm_topic_bindings_session_id
            FOREIGN KEY (session_id) REFERENCES sessions (id) ON DELETE CASCADE
    )
    """,
    "CREATE UNIQUE INDEX IF NOT EXISTS idx_telegram_dm_topic_bindings_session "
    "ON telegram_dm_topic_bindings (session_id)",
    "CREATE INDEX IF NOT EXISTS idx_telegram_dm_topic_bindings_user "
    "ON telegram_dm_topic_bindings (profile_name, user_id, chat_id)",
    """
    CREATE TABLE IF NOT EXISTS delivery_obligations (
        obligation_id TEXT COLLATE "C" NOT NULL
            CONSTRAINT delivery_obligations_pkey PRIMARY KEY,
        session_key TEXT COLLATE "C" NOT NULL,
        platform TEXT COLLATE "C" NOT NULL,
        chat_id TEXT COLLATE "C" NOT NULL,
        thread_id TEXT COLLATE "C",
        content TEXT COLLATE "C" NOT NULL,
        state TEXT COLLATE "C" NOT NULL,
        attempts INTEGER NOT NULL DEFAULT 0,
        created_at DOUBLE PRECISION NOT NULL,
        updated_at DOUBLE PRECISION NOT NULL,
        owner_pid BIGINT,
        owner_started_at BIGINT,
        last_error TEXT COLLATE "C",
        adapter_profile TEXT COLLATE "C",
        delivery_fence BIGINT NOT NULL DEFAULT 0,
        owner_installation_id TEXT COLLATE "C",
        owner_host TEXT COLLATE "C",
        owner_generation TEXT COLLATE "C",
        lease_expires_at DOUBLE PRECISION
    )
    """,
    "CREATE INDEX IF NOT EXISTS idx_delivery_obligations_state "
    "ON delivery_obligations (state, platform, adapter_profile)",
)
"""Tables that SQLite files get when they are first needed."""

_DROP_IF_EMPTY = """
DO $$ BEGIN
    IF to_regclass('{table}') IS NOT NULL THEN
        IF NOT EXISTS (SELECT FROM {table}) THEN DROP TABLE {table}; END IF;
    END IF;
END $$
"""


def pause_search(connection: Connection) -> Mapping[str, str]:
    """Return nothing: no trigger keeps the search entries here."""
    return {}


def establish_search(
    connection: Connection, layout: str | None, found: Mapping[str, str], *, deferred: bool = False
) -> None:
    """Do nothing: the store fills `message_search` itself, whatever SQLite's layout is."""


def create_triggers_0030(connection: Connection) -> None:
    """Do nothing: every write goes through the store, which computes the order of display."""


def drop_triggers_0030(connection: Connection) -> None:
    """Do nothing, as there are none."""


def create_derived_0031(connection: Connection) -> None:
    """Create triggers, functions and the search table of revision 0031."""
    for statement in (*_SEARCH_0031, *_ON_DEMAND_0031):
        connection.exec_driver_sql(statement)
    create_recency_triggers(connection)
    create_search_triggers(connection)
    create_json_reader(connection)
    create_trigram_indexes(connection)
    add_delegation_leases(connection)


def drop_derived_0031(connection: Connection) -> None:
    """Drop what revision 0031 created, tables aside that are the same on every database."""
    for name in sorted(RECENCY_TRIGGERS | SEARCH_TRIGGERS):
        connection.exec_driver_sql(f"DROP FUNCTION IF EXISTS {name}() CASCADE")
    for name in TRIGRAM_INDEXES:
        connection.exec_driver_sql(f"DROP INDEX IF EXISTS {name}")
    connection.exec_driver_sql("DROP FUNCTION IF EXISTS hermes_recency_refresh(text[])")
    connection.exec_driver_sql("DROP FUNCTION IF EXISTS hermes_json_text(text, text)")
    connection.exec_driver_sql("DROP TABLE IF EXISTS message_search")
    # With rows they stay: older programs have them, too, where they were needed.
    for name in ("telegram_dm_topic_bindings", "telegram_dm_topic_mode", "delivery_obligations"):
        connection.exec_driver_sql(_DROP_IF_EMPTY.format(table=name))
    drop_delegation_leases(connection)


def drop_columns(connection: Connection, table: str, names: list[str]) -> None:
    """Drop columns that no index names."""
    dropped = ", ".join(f'DROP COLUMN "{name}"' for name in names)
    connection.exec_driver_sql(f"ALTER TABLE {table} {dropped}")


def require_value(
    connection: Connection, table: str, column: str, type_: str, default: str
) -> None:
    """Make a column NOT NULL with a default; NULL becomes the default."""
    connection.exec_driver_sql(f"UPDATE {table} SET {column} = {default} WHERE {column} IS NULL")
    connection.exec_driver_sql(
        f"ALTER TABLE {table} ALTER COLUMN {column} SET DEFAULT {default}, "
        f"ALTER COLUMN {column} SET NOT NULL"
    )


def add_foreign_key(
    connection: Connection, table: str, column: str, target: tuple[str, str]
) -> None:
    """Make an existing column refer to a column of another table."""
    connection.exec_driver_sql(
        f"ALTER TABLE {table} ADD CONSTRAINT fk_{table}_{column} "
        f"FOREIGN KEY ({column}) REFERENCES {target[0]} ({target[1]})"
    )
