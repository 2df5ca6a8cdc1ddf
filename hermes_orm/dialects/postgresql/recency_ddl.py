"""Triggers that keep `hermes_session_recency` when anything but an append changes it.

There is none on inserted messages: the statement that appends writes the recency itself. Inserted
sessions and deleted rows are handled once per statement, because bulk statements touch many.
"""

from sqlalchemy import Connection

from hermes_orm.dialects.recency import recency_definition, recency_without_messages

# SET search_path: a function finds the tables also when a statement qualifies its own.
# Generic plans: planning the refresh anew for each array takes longer than running it.
_FUNCTION = """
    CREATE OR REPLACE FUNCTION {signature} LANGUAGE plpgsql
    SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan AS $body$
    BEGIN
        {body};
        {end}
    END $body$
"""

# Ordered, so that two statements that refresh the same sessions lock them in the same order.
_REFRESH = """
    INSERT INTO hermes_session_recency (session_id, last_active)
    SELECT now.session_id, now.last_active FROM ({definition}) AS now
    WHERE now.session_id = ANY (changed)
    ORDER BY now.session_id
    ON CONFLICT (session_id) DO UPDATE SET last_active = excluded.last_active
    WHERE hermes_session_recency.last_active <> excluded.last_active
"""

# A session that is only just inserted has no messages yet.
_STARTED = """
    INSERT INTO hermes_session_recency (session_id, last_active)
    SELECT id, {started} FROM changed AS sessions
    ON CONFLICT (session_id) DO UPDATE SET last_active = excluded.last_active
"""

_TRIGGERS = {
    "hermes_recency_session_insert": (
        "AFTER INSERT ON sessions REFERENCING NEW TABLE AS changed FOR EACH STATEMENT",
        _STARTED,
    ),
    "hermes_recency_session_update": (
        "AFTER UPDATE OF last_activity_at, started_at ON sessions FOR EACH ROW "
        "WHEN (OLD.last_activity_at IS DISTINCT FROM NEW.last_activity_at "
        "OR OLD.started_at IS DISTINCT FROM NEW.started_at)",
        "PERFORM hermes_recency_refresh(ARRAY[NEW.id])",
    ),
    "hermes_recency_session_delete": (
        "AFTER DELETE ON sessions REFERENCING OLD TABLE AS changed FOR EACH STATEMENT",
        "DELETE FROM hermes_session_recency WHERE session_id = ANY (ARRAY(SELECT id FROM changed))",
    ),
    "hermes_recency_message_update": (
        "AFTER UPDATE OF timestamp, session_id ON messages FOR EACH ROW "
        "WHEN (OLD.timestamp IS DISTINCT FROM NEW.timestamp "
        "OR OLD.session_id IS DISTINCT FROM NEW.session_id)",
        "PERFORM hermes_recency_refresh(ARRAY[OLD.session_id, NEW.session_id])",
    ),
    "hermes_recency_message_delete": (
        "AFTER DELETE ON messages REFERENCING OLD TABLE AS changed FOR EACH STATEMENT",
        "PERFORM hermes_recency_refresh(ARRAY(SELECT DISTINCT session_id FROM changed))",
    ),
}

RECENCY_TRIGGERS = frozenset(_TRIGGERS)


def create_recency_triggers(connection: Connection) -> None:
    """Create the triggers and their functions, each under the name of its trigger."""
    dialect = connection.dialect
    definition = str(recency_definition().compile(dialect=dialect))
    started = str(recency_without_messages().compile(dialect=dialect))
    refresh = _FUNCTION.format(
        signature="hermes_recency_refresh(changed text[]) RETURNS void",
        body=_REFRESH.format(definition=definition),
        end="",
    )
    connection.exec_driver_sql(refresh)
    for name, (event, body) in _TRIGGERS.items():
        function = _FUNCTION.format(
            signature=f"{name}() RETURNS trigger",
            body=body.replace("{started}", started),
            end="RETURN NULL;",
        )
        connection.exec_driver_sql(function)
        connection.exec_driver_sql(
            f"CREATE OR REPLACE TRIGGER {name} {event} EXECUTE FUNCTION {name}()"
        )
