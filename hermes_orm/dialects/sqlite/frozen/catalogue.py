"""What revisions look up in a SQLite file."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from sqlalchemy import Connection


def columns(connection: Connection, table: str) -> dict[str, bool]:
    """Return the columns of a table, each with whether it may be NULL; empty without the table."""
    query = 'SELECT name, NOT "notnull" FROM pragma_table_info(?)'
    return {name: bool(nullable) for name, nullable in _rows(connection, query, table)}


def primary_key(connection: Connection, table: str) -> list[str]:
    """Return the names of the key columns, in order."""
    query = "SELECT name FROM pragma_table_info(?) WHERE pk > 0 ORDER BY pk"
    return [row[0] for row in _rows(connection, query, table)]


def has_index(connection: Connection, name: str) -> bool:
    """Whether there is an index of that name."""
    query = "SELECT 1 FROM sqlite_schema WHERE type = 'index' AND name = ?"
    return bool(_rows(connection, query, name))


def is_big(connection: Connection, table: str) -> bool:
    """Return False: the whole migration is one transaction here."""
    return False


def patient(connection: Connection) -> AbstractContextManager[None]:
    """Return a block without effect."""
    return nullcontext()


def has_foreign_key(connection: Connection, table: str, column: str) -> bool:
    """Whether a column refers to another table."""
    query = 'SELECT 1 FROM pragma_foreign_key_list(?) WHERE "from" = ?'
    return bool(_rows(connection, query, table, column))


def triggers_of(connection: Connection, table: str) -> list[str]:
    """Return the definitions of the triggers on a table."""
    query = "SELECT sql FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = ? ORDER BY rowid"
    return [row[0] for row in _rows(connection, query, table)]


def _rows(connection: Connection, query: str, *values: str) -> list[Any]:
    """Ask the driver itself: the revisions look hundreds of times before they change anything."""
    driver: Any = connection.connection.driver_connection
    rows: list[Any] = driver.execute(query, values).fetchall()
    return rows
