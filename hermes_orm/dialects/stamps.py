"""What a new database says about itself, and the stamp that marks the newest schema."""

from datetime import UTC, datetime
from uuid import uuid4

from sqlalchemy import Connection, insert

from hermes_orm import clock
from hermes_orm.models.meta import HEAD_REVISION, SCHEMA_VERSION, SchemaVersion, StateMeta
from hermes_orm.models.own import AlembicVersion


def stamp_head(connection: Connection) -> None:
    """Mark a database that has no stamp as being at the newest revision."""
    connection.execute(insert(AlembicVersion), {"version_num": HEAD_REVISION})


def describe_new_database(connection: Connection) -> None:
    """Write the schema number that other programs read, and the identity of this store."""
    connection.execute(insert(SchemaVersion), {"version": SCHEMA_VERSION})
    settings = {
        "store_instance_id": str(uuid4()),
        "store_created_at_utc": datetime.fromtimestamp(clock.now(), UTC).isoformat(),
        "message_uid_backfill": "1",  # every row gets its uid when it is inserted
    }
    connection.execute(
        insert(StateMeta), [{"key": key, "value": value} for key, value in settings.items()]
    )
