"""What revisions look up in the current schema of a PostgreSQL database."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, text

BIG_TABLE_ROWS = 2_000

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
    """Whether there is an index of that name that was built to its end."""
    query = text(
        "SELECT count(*) FROM pg_class JOIN pg_index ON indexrelid = pg_class.oid "
        f"WHERE {_IN_SCHEMA} AND relname = :name AND indisvalid"
    )
    return bool(connection.scalar(query, {"name": name}))


def is_big(connection: Connection, table: str) -> bool:
    """Whether building an index of a table would keep its writers waiting for long."""
    few = text(f"SELECT count(*) FROM (SELECT FROM {table} LIMIT {BIG_TABLE_ROWS}) AS few")
    return bool(connection.scalar(few) == BIG_TABLE_ROWS)


@contextmanager
def patient(connection: Connection) -> Iterator[None]:
    """Wait as long as it takes within the block, for nobody waits for a concurrent build."""
    connection.exec_driver_sql("SET lock_timeout = 0")
    yield
    connection.exec_driver_sql("RESET lock_timeout")


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
