"""Schema of a PostgreSQL database."""

from sqlalchemy import Connection

from hermes_orm.dialects.creation import create_tables, describe_new_database, stamp_head
from hermes_orm.dialects.postgresql.delegations_ddl import add_delegation_leases
from hermes_orm.dialects.postgresql.markers_ddl import create_json_reader
from hermes_orm.dialects.postgresql.recency_ddl import RECENCY_TRIGGERS, create_recency_triggers
from hermes_orm.dialects.postgresql.search_ddl import SEARCH_TRIGGERS, create_search_triggers
from hermes_orm.dialects.postgresql.trigram_ddl import create_trigram_indexes
from hermes_orm.dialects.recency import fill_recency
from hermes_orm.models import Base
from hermes_orm.models.own import OWN_TABLES

OWN_TRIGGERS = RECENCY_TRIGGERS | SEARCH_TRIGGERS

OWN_OBJECTS = OWN_TRIGGERS | OWN_TABLES
"""Tables and triggers that SQLite files of other programs do not have; all derived or a marker."""

__all__ = ["OWN_OBJECTS", "OWN_TABLES", "OWN_TRIGGERS", "create_head", "fill_recency"]


def create_head(connection: Connection) -> None:
    """Build the newest schema in an empty database, in the schema that is current."""
    create_tables(connection, Base.metadata.sorted_tables)
    describe_new_database(connection)
    create_recency_triggers(connection)
    create_search_triggers(connection)
    create_json_reader(connection)
    create_trigram_indexes(connection)
    add_delegation_leases(connection)
    stamp_head(connection)
