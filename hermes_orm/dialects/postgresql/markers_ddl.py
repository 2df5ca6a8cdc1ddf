"""The function that reads a value out of stored JSON text, whatever that text is."""

from sqlalchemy import Connection

# Valid JSON may hold escapes that jsonb refuses: U+0000 and lone surrogates. They are replaced in a
# second attempt only, so that whole surrogate pairs stay what they are in every other document. An
# escape counts when an even number of backslashes stands before it.
_UNSTORABLE = r"(?<!\\)((?:\\\\)*)\\u(?:0000|[dD][89a-fA-F][0-9a-fA-F]{2})"
_REPLACED = r"\1\\ufffd"

_JSON_TEXT = f"""
    CREATE OR REPLACE FUNCTION hermes_json_text(document text, key text) RETURNS text
    LANGUAGE plpgsql IMMUTABLE STRICT AS $body$
    BEGIN
        RETURN CAST(document AS jsonb) ->> key;
    EXCEPTION WHEN OTHERS THEN
        BEGIN
            RETURN CAST(
                regexp_replace(document, '{_UNSTORABLE}', '{_REPLACED}', 'g') AS jsonb
            ) ->> key;
        EXCEPTION WHEN OTHERS THEN
            RETURN NULL;
        END;
    END $body$
"""


def create_json_reader(connection: Connection) -> None:
    """Create `hermes_json_text(document, key)`: NULL for a malformed document, never an error.

    It is pure, so it needs no column that writers would have to fill, and covers every writer.
    """
    connection.exec_driver_sql(_JSON_TEXT)
