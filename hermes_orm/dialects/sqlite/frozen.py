"""What the revisions do on SQLite only. A function is never edited once it is released."""

from sqlalchemy import Connection

from hermes_orm.dialects.sqlite.display_ddl import create_display_triggers
from hermes_orm.dialects.sqlite.recency_ddl import create_recency_triggers
from hermes_orm.dialects.sqlite.search_ddl import create_search

SINGLE_KEY_NULLABLE = True
"""Other programs declare a key of one column without NOT NULL."""


def create_derived_0031(connection: Connection) -> None:
    """Create triggers and search objects of revision 0031."""
    create_display_triggers(connection)
    create_search(connection)
    create_recency_triggers(connection)
