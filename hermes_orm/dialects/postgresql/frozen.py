"""What the revisions do on PostgreSQL only. A function is never edited once it is released."""

from sqlalchemy import Connection

from hermes_orm.dialects.postgresql.markers_ddl import create_json_reader
from hermes_orm.dialects.postgresql.recency_ddl import create_recency_triggers

SINGLE_KEY_NULLABLE = False
"""A primary key is NOT NULL in any case, and the server refuses NULL beside it."""

_SEARCH_0031 = (
    """
    CREATE TABLE message_search (
        message_id BIGINT NOT NULL CONSTRAINT message_search_pkey PRIMARY KEY
            CONSTRAINT fk_message_search_message_id REFERENCES messages (id) ON DELETE CASCADE,
        vec TSVECTOR NOT NULL,
        doc_len INTEGER NOT NULL,
        search_text TEXT COLLATE "C"
    )
    """,
    "CREATE INDEX idx_message_search_vec ON message_search USING gin (vec)",
)


def create_derived_0031(connection: Connection) -> None:
    """Create triggers, functions and the search table of revision 0031."""
    for statement in _SEARCH_0031:
        connection.exec_driver_sql(statement)
    create_recency_triggers(connection)
    create_json_reader(connection)
