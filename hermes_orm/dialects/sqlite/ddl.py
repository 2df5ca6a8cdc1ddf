"""Schema of a SQLite file: what other programs share, and what this project adds."""

from functools import cache

from sqlalchemy import Connection, MetaData, Table

from hermes_orm.dialects.creation import create_tables, describe_new_database, stamp_head
from hermes_orm.dialects.recency import fill_recency
from hermes_orm.dialects.sqlite.display_ddl import create_display_triggers
from hermes_orm.dialects.sqlite.recency_ddl import RECENCY_TRIGGERS, create_recency_triggers
from hermes_orm.dialects.sqlite.search_ddl import create_search
from hermes_orm.models import AlembicVersion, Base, MessageSearch, SessionRecency
from hermes_orm.models.own import ON_DEMAND_TABLES

__all__ = [
    "INDEXES",
    "OWN_OBJECTS",
    "OWN_TABLES",
    "RECENCY_TRIGGERS",
    "complete_head",
    "create_head",
]

OWN_TABLES = tuple(
    Base.metadata.tables[model.__tablename__] for model in (AlembicVersion, SessionRecency)
)

OWN_OBJECTS = RECENCY_TRIGGERS | {
    name for table in OWN_TABLES for name in (table.name, *(str(i.name) for i in table.indexes))
}
"""Everything in a file that is not upstream's: derived or a marker, may be dropped without loss."""

INDEXES = frozenset(
    str(index.name)
    for table in Base.metadata.tables.values()
    if table.name not in {MessageSearch.__tablename__, *ON_DEMAND_TABLES}
    for index in table.indexes
)
"""The indexes of the newest schema."""


def create_head(connection: Connection) -> frozenset[str]:
    """Build the newest schema in an empty file; return the names of its FTS tables."""
    create_tables(connection, _shared_tables())
    create_display_triggers(connection)
    fts_tables = create_search(connection)
    describe_new_database(connection)
    _add_own_objects(connection)
    return fts_tables


def complete_head(connection: Connection) -> None:
    """Add the stamp and the own objects to another program's file of the newest schema.

    Nothing is done when all of them exist; nothing of the other program's is touched.
    """
    names = ", ".join(f"'{name}'" for name in OWN_OBJECTS)
    found = connection.exec_driver_sql(
        f"SELECT name, type FROM sqlite_schema WHERE name IN ({names})"
    )
    kinds = {row[0]: row[1] for row in found}
    if kinds.keys() == OWN_OBJECTS:
        return
    # Triggers stand on tables of the other program, so they do not go with ours.
    for kind in ("trigger", "table"):
        for name in (name for name, its_kind in kinds.items() if its_kind == kind):
            connection.exec_driver_sql(f"DROP {kind} {name}")
    _add_own_objects(connection)


def _add_own_objects(connection: Connection) -> None:
    create_tables(connection, OWN_TABLES)
    fill_recency(connection)
    create_recency_triggers(connection)
    stamp_head(connection)


@cache
def _shared_tables() -> list[Table]:
    """Tables of the shared schema, each with the declaration that upstream gives its key."""
    metadata = MetaData()
    absent = {MessageSearch.__tablename__, *ON_DEMAND_TABLES}
    for table in Base.metadata.tables.values():
        if table not in OWN_TABLES and table.name not in absent:
            key = table.to_metadata(metadata).primary_key.columns
            if len(key) == 1:
                key[0].nullable = True
    return metadata.sorted_tables
