"""Moving a session to another store: copied first, deleted then, so that it is never lost."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, Final, Literal

from sqlalchemy import BigInteger, Column, Table

from hermes_orm import clock
from hermes_orm.arguments import finite_number, mapping
from hermes_orm.codec import (
    decode_api_content,
    decode_content,
    encode_api_content,
    encode_content,
    encode_integer,
    encode_timestamp,
)
from hermes_orm.database import Database, Dialect
from hermes_orm.repositories.gateway.moves import (
    MESSAGES,
    SESSIONS,
    USAGE,
    Arrival,
    MoveRepository,
)
from hermes_orm.repositories.sessions.prompts import prompt_hash
from hermes_orm.session_text import session_text, stored_key

_SMALL: Final = range(-(2**31), 2**31)


async def import_moved_session(
    database: Database, payload: Mapping[str, Any], *, profile_name: str
) -> Literal["imported", "present"]:
    """Store what `export_session_for_move` returned, perhaps of another database.

    The session gets the label `profile_name`, unless that is blank. Its messages get new row ids;
    a parent that is not here is left out; a title that is taken gets the end of the id behind it.
    `present`, with nothing changed, when the session is here. Raises ValueError for a payload
    without a session.
    """
    arrival = _arrival(database.dialect, payload, (session_text(profile_name) or "").strip())
    is_new = await database.write(lambda tx: MoveRepository(tx).store(arrival))
    if not is_new:
        return "present"
    database.tombstones.lift(arrival.session["id"])
    return "imported"


async def delete_moved_session(database: Database, session_id: str) -> bool:
    """Delete a session that was moved, alone: its children become roots.

    False when there is no such session. Files stay, they may belong to the moved one.
    """
    await database.settle()
    is_gone = await database.write(lambda tx: MoveRepository(tx).delete_moved_session(session_id))
    if is_gone:
        database.tombstones.bury([session_id])
    return is_gone


def _arrival(dialect: Dialect, payload: Mapping[str, Any], profile: str) -> Arrival:
    given = mapping(payload, "payload").get("session")
    if not isinstance(given, Mapping) or not given.get("id") or not given.get("source"):
        raise ValueError("payload holds no session with id and source: export one for a move")
    session = _row(SESSIONS, given)
    session["id"] = key = stored_key(given["id"])
    session["profile_name"] = profile or session["profile_name"]
    session["started_at"] = encode_timestamp(given.get("started_at"), clock.now())
    prompts = {}
    if (prompt := session_text(payload.get("system_prompt"))) is not None:
        session |= {"system_prompt_hash": prompt_hash(prompt), "system_prompt": None}
        prompts[session["system_prompt_hash"]] = prompt
    else:
        session["system_prompt_hash"] = None
    if (pin := session_text(payload.get("tool_pin"))) is not None:
        session["tool_names"] = prompt_hash(pin)
        prompts[session["tool_names"]] = pin
    messages = [_message(dialect, message, key) for message in payload.get("messages") or ()]
    usage = [{**_row(USAGE, row), "session_id": key} for row in payload.get("usage") or ()]
    return Arrival(session, prompts, messages, usage)


def _message(dialect: Dialect, given: Mapping[str, Any], session_id: str) -> Mapping[str, Any]:
    row, marker = _row(MESSAGES, given), dialect.content_marker
    row |= {
        "session_id": session_id,
        "role": row["role"] or "unknown",
        "timestamp": encode_timestamp(given.get("timestamp"), clock.now()),
        "content": encode_content(marker, decode_content(given.get("content"))),
        "api_content": encode_api_content(marker, decode_api_content(given.get("api_content"))),
        "message_uid": row["message_uid"] or uuid.uuid4().hex,
    }
    return dialect.transcript.indexed(row)


def _row(table: Table, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with all columns of a table; values that a column cannot hold are none."""
    row = mapping(given, f"a row of {table.name}")
    return {column.name: _value(column, row.get(column.name)) for column in table.columns}


def _value(column: Column[Any], value: Any) -> Any:
    kind = column.type.python_type
    if kind is str:
        found: Any = session_text(value)
    elif kind is int:
        found = encode_integer(value)
        # None is no number, and a range looks for it among all of its numbers.
        if found is not None and found not in _SMALL and not isinstance(column.type, BigInteger):
            found = None
    else:
        found = _finite(value)
    return _default(column) if found is None and not column.nullable else found


def _finite(value: Any) -> float | None:
    try:
        return finite_number(value, "a number")
    except (TypeError, ValueError):
        return None


def _default(column: Column[Any]) -> Any:
    text = str(getattr(column.server_default, "arg", "")).strip("'")
    return text if column.type.python_type is str else column.type.python_type(text or 0)
