"""The trigger by which search entries go with their messages.

A reference that deletes them looks for the entry of each message by itself, which takes several
times as long as deleting the messages.
"""

from sqlalchemy import Connection

_NAME = "hermes_message_search_delete"

# SET search_path: the function finds the table also when a statement qualifies its own.
_FUNCTION = f"""
    CREATE OR REPLACE FUNCTION {_NAME}() RETURNS trigger LANGUAGE plpgsql
    SET search_path FROM CURRENT AS $body$
    BEGIN
        DELETE FROM message_search WHERE message_id = ANY (ARRAY(SELECT id FROM changed));
        RETURN NULL;
    END $body$
"""

_TRIGGER = f"""
    CREATE OR REPLACE TRIGGER {_NAME} AFTER DELETE ON messages
    REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION {_NAME}()
"""

SEARCH_TRIGGERS = frozenset({_NAME})


def create_search_trigger(connection: Connection) -> None:
    """Create the trigger and its function, under the same name."""
    connection.exec_driver_sql(_FUNCTION)
    connection.exec_driver_sql(_TRIGGER)
