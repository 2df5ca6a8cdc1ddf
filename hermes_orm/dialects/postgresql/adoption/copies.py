"""The JSON copies (`payload`) that the existing store has of rows, compared with the columns.

The columns count. Only the copy tells structured content from text that looks like it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from sqlalchemy import Connection, Row, text

from hermes_orm.codec import POSTGRESQL_MARKER, decode_json, encode_content, plain_text

CHUNK: Final = 100
"""Rows held in memory at a time: each may have a megabyte, twice."""
ADOPTED_COPIES: Final = "hermes_adopted_copies"
KEEP: Final = text(
    f"INSERT INTO {ADOPTED_COPIES} (table_name, row_key, payload) "
    "VALUES (:table_name, :row_key, :payload)"
)
REWRITE: Final = text(
    "UPDATE messages SET content = :content, api_content = :api_content WHERE id = :id"
)


def check_sessions(connection: Connection) -> int:
    """Return how many copies of sessions say something else than the columns; those are kept.

    Numbers are left out: the store counts in the columns without touching the copy.
    """
    return sum(
        _keep(
            connection,
            "sessions",
            [row for row in chunk if _differs(row, _copy(row.payload), numbers=False)],
        )
        for chunk in _chunks(connection, "sessions")
    )


def check_messages(connection: Connection) -> dict[str, int]:
    """Store content in the form of this project; return what was changed and kept."""
    structured = kept = 0
    for chunk in _chunks(connection, "messages"):
        changed, differing = [], []
        for row in chunk:
            copy = _copy(row.payload)
            if _differs(row, copy, numbers=True):
                differing.append(row)
            content = encode_content(POSTGRESQL_MARKER, _value(row.content, copy.get("content")))
            api_content = encode_content(POSTGRESQL_MARKER, row.api_content)
            if (content, api_content) != (row.content, row.api_content):
                changed.append({"id": row.id, "content": content, "api_content": api_content})
        if changed:
            connection.execute(REWRITE, changed)
        structured += len(changed)
        kept += _keep(connection, "messages", differing)
    return {"structured contents marked": structured, "copies of messages kept": kept}


def _value(stored: str | None, copy: object) -> object:
    """Return the value of a content column, whose type only the copy tells."""
    if not isinstance(copy, list | dict) or stored is None:
        return stored
    value = decode_json(stored)
    return value if isinstance(value, list | dict) else stored


def _differs(row: Row[Any], copy: dict[str, Any], *, numbers: bool) -> bool:
    """Whether the copy holds a value that its row does not; one without a value says nothing."""
    columns = row._mapping
    return any(
        not _agree(columns[key], value)
        for key, value in copy.items()
        if key in columns and value and (numbers or isinstance(value, str | list | dict))
    )


def _agree(stored: Any, value: Any) -> bool:
    if stored is None:
        return False
    if isinstance(stored, str) and not isinstance(value, str):
        return bool(decode_json(stored) == value) or stored == plain_text(value)
    if isinstance(value, str) and not isinstance(stored, str):
        return True  # a time as the caller spelt it
    return bool(stored == value)


def _copy(payload: str) -> dict[str, Any]:
    copy = decode_json(payload)
    return copy if isinstance(copy, dict) else {}


def _chunks(connection: Connection, table: str) -> Iterator[Sequence[Row[Any]]]:
    """Yield the rows of a table in the order of their ids."""
    condition = ""
    params: dict[str, Any] = {}
    while True:
        query = f"SELECT * FROM {table} {condition} ORDER BY id LIMIT {CHUNK}"
        chunk = connection.execute(text(query), params).all()
        if not chunk:
            return
        yield chunk
        condition, params = "WHERE id > :after", {"after": chunk[-1].id}


def _keep(connection: Connection, table: str, rows: Sequence[Row[Any]]) -> int:
    """Keep the copies of rows, for people to look at."""
    if rows:
        connection.exec_driver_sql(
            f"CREATE TABLE IF NOT EXISTS {ADOPTED_COPIES} "
            "(table_name TEXT NOT NULL, row_key TEXT NOT NULL, payload TEXT NOT NULL)"
        )
        connection.execute(
            KEEP,
            [{"table_name": table, "row_key": str(row.id), "payload": row.payload} for row in rows],
        )
    return len(rows)
