"""Triggers that keep `hermes_session_recency`, also for rows that another program writes."""

from sqlalchemy import Connection

from hermes_orm.codec import EARLIEST_TIME, LATEST_TIME
from hermes_orm.dialects.recency import recency_definition

_IS_TIME = f"BETWEEN {EARLIEST_TIME} AND {LATEST_TIME}"

_REFRESH = """
    INSERT INTO hermes_session_recency (session_id, last_active)
    SELECT now.session_id, now.last_active FROM ({definition}) AS now
    WHERE now.session_id IN ({sessions})
    ON CONFLICT (session_id) DO UPDATE SET last_active = excluded.last_active
"""

# An append costs two index look-ups. Only a message older than the recorded time needs more: it
# lowers that time when this was the session's start, used while nothing else was known.
_APPENDED = f"""
    UPDATE hermes_session_recency SET last_active = NEW.timestamp
    WHERE session_id = NEW.session_id AND NEW.timestamp {_IS_TIME} AND (
        last_active < NEW.timestamp
        OR last_active > NEW.timestamp
        AND NOT EXISTS (
            SELECT 1 FROM sessions
            WHERE id = NEW.session_id AND last_activity_at {_IS_TIME}
        )
        AND NOT EXISTS (
            SELECT 1 FROM messages WHERE session_id = NEW.session_id AND id <> NEW.id
            AND timestamp {_IS_TIME}
        )
    )
"""

_WAS_LATEST = """
    OLD.timestamp >= (
        SELECT last_active FROM hermes_session_recency WHERE session_id = OLD.session_id
    )
"""

_REMOVED = """
    UPDATE hermes_session_recency
    SET last_active = (
        SELECT now.last_active FROM ({definition}) AS now WHERE now.session_id = OLD.session_id
    )
    WHERE session_id = OLD.session_id
    AND EXISTS (SELECT 1 FROM sessions WHERE id = OLD.session_id)
"""

_TRIGGERS = {
    "hermes_recency_message_insert": ("AFTER INSERT ON messages", _APPENDED),
    "hermes_recency_message_delete": (
        f"AFTER DELETE ON messages WHEN {_WAS_LATEST}",
        _REMOVED,
    ),
    "hermes_recency_message_update": (
        "AFTER UPDATE OF timestamp, session_id ON messages "
        "WHEN OLD.timestamp IS NOT NEW.timestamp OR OLD.session_id IS NOT NEW.session_id",
        _REFRESH.replace("{sessions}", "OLD.session_id, NEW.session_id"),
    ),
    "hermes_recency_session_insert": (
        "AFTER INSERT ON sessions",
        _REFRESH.replace("{sessions}", "NEW.id"),
    ),
    "hermes_recency_session_update": (
        "AFTER UPDATE OF last_activity_at, started_at ON sessions "
        "WHEN OLD.last_activity_at IS NOT NEW.last_activity_at "
        "OR OLD.started_at IS NOT NEW.started_at",
        _REFRESH.replace("{sessions}", "NEW.id"),
    ),
    "hermes_recency_session_delete": (
        "AFTER DELETE ON sessions",
        "DELETE FROM hermes_session_recency WHERE session_id = OLD.id",
    ),
}

RECENCY_TRIGGERS = frozenset(_TRIGGERS)


def create_recency_triggers(connection: Connection) -> None:
    """Create the triggers; from then on the table follows every write."""
    definition = _definition(connection)
    for name, (event, action) in _TRIGGERS.items():
        body = action.replace("{definition}", definition)
        connection.exec_driver_sql(f"DROP TRIGGER IF EXISTS {name}")
        connection.exec_driver_sql(f"CREATE TRIGGER {name} {event} BEGIN {body}; END")


def show_recency(connection: Connection) -> None:
    """Compute recency on each use, for a connection that may not write to a file without it."""
    connection.exec_driver_sql(
        f"CREATE TEMP VIEW hermes_session_recency AS {_definition(connection)}"
    )


def _definition(connection: Connection) -> str:
    return str(recency_definition().compile(dialect=connection.dialect))
