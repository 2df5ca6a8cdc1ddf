"""Steps that creating a database has in common: tables, what it says about itself, the stamp."""

from collections.abc import Iterable
from datetime import UTC, datetime
from uuid import uuid4

from sqlalchemy import Connection, Table, insert
from sqlalchemy.schema import CreateIndex, CreateTable

from hermes_orm import clock
from hermes_orm.dialects.uids import UID_MARK
from hermes_orm.models.meta import HEAD_REVISION, SCHEMA_VERSION, SchemaVersion, StateMeta
from hermes_orm.models.own import AlembicVersion


def create_tables(connection: Connection, tables: Iterable[Table]) -> None:
    """Create tables and their indexes.

    A table keeps its indexes in a set: sorting them makes all databases alike, down to the index
    that a planner prefers among equals.
    """
    for table in tables:
        connection.execute(CreateTable(table))
        for index in sorted(table.indexes, key=lambda index: str(index.name)):
            connection.execute(CreateIndex(index))


def stamp_head(connection: Connection) -> None:
    """Mark a database that has no stamp as being at the newest revision."""
    connection.execute(insert(AlembicVersion), {"version_num": HEAD_REVISION})


def describe_new_database(connection: Connection) -> None:
    """Write the schema number that other programs read, and the identity of this store."""
    connection.execute(insert(SchemaVersion), {"version": SCHEMA_VERSION})
    settings = {
        "store_instance_id": str(uuid4()),
        "store_created_at_utc": datetime.fromtimestamp(clock.now(), UTC).isoformat(),
        UID_MARK: "1",  # every row gets its uid when it is inserted
    }
    connection.execute(
        insert(StateMeta), [{"key": key, "value": value} for key, value in settings.items()]
    )
