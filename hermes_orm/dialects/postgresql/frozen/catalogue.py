"""What revisions look up in the current schema of a PostgreSQL database."""

from sqlalchemy import Connection, text

_IN_SCHEMA = "relnamespace = current_schema()::regnamespace"


def columns(connection: Connection, table: str) -> dict[str, bool]:
    """Return the columns of a table, each with whether it may be NULL; empty without the table."""
    query = text(f"""
        SELECT attname, NOT attnotnull FROM pg_attribute JOIN pg_class c ON c.oid = attrelid
        WHERE {_IN_SCHEMA} AND relname = :name AND attnum > 0 AND NOT attisdropped ORDER BY attnum
    """)
    return {row[0]: row[1] for row in connection.execute(query, {"name": table})}


def primary_key(connection: Connection, table: str) -> list[str]:
    """Return the names of the key columns, in order."""
    query = text(f"""
        SELECT attname FROM pg_constraint k JOIN pg_class c ON c.oid = conrelid
        CROSS JOIN unnest(conkey) WITH ORDINALITY AS part (number, place)
        JOIN pg_attribute a ON a.attrelid = conrelid AND attnum = part.number
        WHERE {_IN_SCHEMA} AND relname = :name AND contype = 'p' ORDER BY place
    """)
    return list(connection.scalars(query, {"name": table}))


def has_index(connection: Connection, name: str) -> bool:
    """Whether there is an index of that name."""
    query = text(f"SELECT count(*) FROM pg_class WHERE {_IN_SCHEMA} AND relname = :name")
    return bool(connection.scalar(query, {"name": name}))


def has_foreign_key(connection: Connection, table: str, column: str) -> bool:
    """Whether a column refers to another table."""
    query = text(f"""
        SELECT count(*) FROM pg_constraint JOIN pg_class c ON c.oid = conrelid
        JOIN pg_attribute a ON a.attrelid = conrelid AND attnum = ANY (conkey)
        WHERE {_IN_SCHEMA} AND relname = :name AND contype = 'f' AND attname = :column
    """)
    return bool(connection.scalar(query, {"name": table, "column": column}))


def triggers_of(connection: Connection, table: str) -> list[str]:
    """Return the definitions of the triggers on a table."""
    query = text(f"""
        SELECT pg_get_triggerdef(t.oid) FROM pg_trigger t JOIN pg_class c ON c.oid = tgrelid
        WHERE {_IN_SCHEMA} AND relname = :name AND NOT tgisinternal ORDER BY tgname
    """)
    return list(connection.scalars(query, {"name": table}))
