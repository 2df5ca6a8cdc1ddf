"""What revisions look up in a SQLite file."""

from contextlib import AbstractContextManager, nullcontext

from sqlalchemy import Connection, text


def columns(connection: Connection, table: str) -> dict[str, bool]:
    """Return the columns of a table, each with whether it may be NULL; empty without the table."""
    query = text('SELECT name, NOT "notnull" FROM pragma_table_info(:name)')
    return {row[0]: bool(row[1]) for row in connection.execute(query, {"name": table})}


def primary_key(connection: Connection, table: str) -> list[str]:
    """Return the names of the key columns, in order."""
    query = text("SELECT name FROM pragma_table_info(:name) WHERE pk > 0 ORDER BY pk")
    return list(connection.scalars(query, {"name": table}))


def has_index(connection: Connection, name: str) -> bool:
    """Whether there is an index of that name."""
    query = text("SELECT count(*) FROM sqlite_schema WHERE type = 'index' AND name = :name")
    return bool(connection.scalar(query, {"name": name}))


def is_big(connection: Connection, table: str) -> bool:
    """Return False: the whole migration is one transaction here."""
    return False


def patient(connection: Connection) -> AbstractContextManager[None]:
    """Return a block without effect."""
    return nullcontext()


def has_foreign_key(connection: Connection, table: str, column: str) -> bool:
    """Whether a column refers to another table."""
    query = text('SELECT count(*) FROM pragma_foreign_key_list(:name) WHERE "from" = :column')
    return bool(connection.scalar(query, {"name": table, "column": column}))


def triggers_of(connection: Connection, table: str) -> list[str]:
    """Return the definitions of the triggers on a table."""
    query = text(
        "SELECT sql FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = :name ORDER BY rowid"
    )
    return list(connection.scalars(query, {"name": table}))
