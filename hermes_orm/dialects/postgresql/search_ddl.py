"""The triggers by which search entries go with their messages.

A reference that deletes them looks for the entry of each message by itself, which takes several
times as long as deleting the messages.
"""

from sqlalchemy import Connection

# SET search_path: a function finds the table also when a statement qualifies its own.
_FUNCTION = """
    CREATE OR REPLACE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql
    SET search_path FROM CURRENT AS $body$
    BEGIN
        {action};
        RETURN NULL;
    END $body$
"""

_TRIGGERS = {
    "hermes_message_search_delete": (
        "AFTER DELETE ON messages REFERENCING OLD TABLE AS changed",
        "DELETE FROM message_search WHERE message_id = ANY (ARRAY(SELECT id FROM changed))",
    ),
    "hermes_message_search_truncate": (
        "AFTER TRUNCATE ON messages",
        "DELETE FROM message_search",
    ),
}

SEARCH_TRIGGERS = frozenset(_TRIGGERS)


def create_search_triggers(connection: Connection) -> None:
    """Create the triggers and their functions, each under the name of its trigger."""
    for name, (event, action) in _TRIGGERS.items():
        connection.exec_driver_sql(_FUNCTION.format(name=name, action=action))
        connection.exec_driver_sql(
            f"CREATE OR REPLACE TRIGGER {name} {event} FOR EACH STATEMENT EXECUTE FUNCTION {name}()"
        )
