"""A session with all its rows as they are stored: out of one store, and into another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from sqlalchemy import (
    BigInteger,
    ClauseElement,
    Table,
    bindparam,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.sql.elements import ColumnElement

from hermes_orm.dialects import Prepared
from hermes_orm.dialects.base import ALL_ROWS
from hermes_orm.dialects.bound_rows import bound_rows, row_list
from hermes_orm.dialects.expressions import bound_texts, has_key_of, insert_into, text_list
from hermes_orm.gateway_rows import MovedSession
from hermes_orm.models import Message, Session, SessionModelUsage, SystemPrompt
from hermes_orm.repositories.base import Repository
from hermes_orm.repositories.messages.transcripts import BEFORE_ALL, FROM_ID
from hermes_orm.repositories.retention.deletion import DeletionRepository
from hermes_orm.repositories.sessions.prompts import PromptRepository
from hermes_orm.session_text import lookup_key

SESSIONS: Final = cast(Table, Session.__table__)
MESSAGES: Final = cast(Table, Message.__table__)
USAGE: Final = cast(Table, SessionModelUsage.__table__)
STATE: Final = (
    "active",
    "compacted",
    "absorbed_message_uids",
    "tool_call_uids",
    "tool_call_uid",
)
"""Columns that an append leaves as they are by default."""
CHUNK: Final = 1_000
LONGEST_SUFFIX: Final = 12

_THIS: Final[ColumnElement[str]] = bindparam("session_id")
_PROMPT: Final = select(SystemPrompt.prompt).where(SystemPrompt.hash == bindparam("hash"))


def _inserted(table: Table) -> dict[str, Any]:
    return {column.name: bindparam(column.name) for column in table.columns}


def _messages() -> ClauseElement:
    limit, offset = (bindparam(name, type_=BigInteger()) for name in ("limit", "offset"))
    columns = sorted(MESSAGES.columns, key=lambda column: column.name != "id")
    return (
        select(*columns)
        .where(MESSAGES.c.session_id == _THIS, MESSAGES.c.id > FROM_ID)
        .order_by(MESSAGES.c.id)
        .limit(limit)
        .offset(offset)
    )


def _store_state() -> ClauseElement:
    types = {name: MESSAGES.c[name].type for name in ("id", *STATE)}
    rows = bound_rows("rows", types).subquery("given")
    values = {name: rows.c[name] for name in STATE}
    return update(Message).where(Message.id == rows.c.id).values(values)


GET = Prepared(select(*SESSIONS.columns).where(SESSIONS.c.id == _THIS))
PROMPT = Prepared(_PROMPT)
GET_MESSAGES = Prepared(_messages)
GET_USAGE = Prepared(
    select(*USAGE.columns).where(USAGE.c.session_id == _THIS).order_by(*USAGE.primary_key)
)
COUNT = Prepared(select(func.count()).where(Message.session_id == _THIS))
IDS = Prepared(select(Message.id).where(Message.session_id == _THIS).order_by(Message.id))
KNOWN = Prepared(select(Session.id).where(Session.id == _THIS))
TAKEN_TITLES = Prepared(
    select(Session.title).where(has_key_of(Session.title, bound_texts("titles")))
)
INSERT_SESSION = Prepared(
    lambda: insert_into(Session, _inserted(SESSIONS)).on_conflict_do_nothing(index_elements=["id"])
)
INSERT_USAGE = Prepared(lambda: insert(USAGE).values(_inserted(USAGE)))
STORE_STATE = Prepared(_store_state)


@dataclass(frozen=True, slots=True)
class Arrival:
    """The rows of a session that is to be stored, ready to be bound."""

    session: Mapping[str, Any]
    prompts: Mapping[str, str]
    messages: Sequence[Mapping[str, Any]]
    usage: Sequence[Mapping[str, Any]]


class MoveRepository(Repository):
    """Rows of one session in all tables."""

    def export_session_for_move(self, session_id: str) -> MovedSession | None:
        """Return all rows of a session as they are stored, for `import_moved_session`.

        Its messages are all there are: live, archived and undone ones. None for an unknown id.
        """
        this = {"session_id": lookup_key(session_id)}
        found = self.tx.first(GET, this)
        if found is None:
            return None
        session = _named(SESSIONS, found)
        window = {"from_id": BEFORE_ALL, "limit": ALL_ROWS, "offset": 0}
        names = sorted(MESSAGES.columns.keys(), key=lambda name: name != "id")
        messages = self.tx.each(GET_MESSAGES, {**this, **window})
        return {
            "session": session,
            "system_prompt": self._prompt(session["system_prompt_hash"]),
            "tool_pin": self._prompt(session["tool_names"]),
            "messages": [dict(zip(names, row, strict=True)) for row in messages],
            "usage": [_named(USAGE, row) for row in self.tx.all(GET_USAGE, this)],
        }

    def _prompt(self, key: str | None) -> str | None:
        text: str | None = None if key is None else self.tx.scalar(PROMPT, {"hash": key})
        return text

    def count_messages_all(self, session_id: str) -> int:
        """Return the number of messages of the session: live, archived and undone ones."""
        count: int = self.tx.scalar(COUNT, {"session_id": lookup_key(session_id)})
        return count

    def delete_moved_session(self, session_id: str) -> bool:
        """Delete a session that was moved, alone: its children become roots.

        False when there is no such session.
        """
        key = lookup_key(session_id)
        return key is not None and bool(DeletionRepository(self.tx).delete([key]))

    def store(self, arrival: Arrival) -> bool:
        """Store the rows of a session that is not there yet; False when it is."""
        this = {"session_id": arrival.session["id"]}
        if self.tx.first(KNOWN, this) is not None:
            return False
        PromptRepository(self.tx).keep_all(arrival.prompts)
        row = {**arrival.session, **self._fitting(arrival.session)}
        if not self.tx.run(INSERT_SESSION, row):
            return False
        for start in range(0, len(arrival.messages), CHUNK):
            rows = arrival.messages[start : start + CHUNK]
            self.tx.dialect.transcript.fill(self.tx, rows)
        self._store_state(this, arrival.messages)
        if arrival.usage:
            self.tx.run_many(INSERT_USAGE, arrival.usage)
        return True

    def _fitting(self, session: Mapping[str, Any]) -> dict[str, Any]:
        """Return a parent that is here, and a title that nobody has."""
        title, key, parent = session["title"], session["id"], session["parent_session_id"]
        known = parent and self.tx.first(KNOWN, {"session_id": parent})
        suffixes = ("", f" ({key[-LONGEST_SUFFIX:]})", f" ({key})")
        titles = [title + suffix for suffix in suffixes] if title else []
        rows = self.tx.all(TAKEN_TITLES, {"titles": text_list(titles)}) if titles else ()
        taken = {row[0] for row in rows}
        return {
            "parent_session_id": parent if known else None,
            "title": next((free for free in titles if free not in taken), title),
        }

    def _store_state(self, this: Mapping[str, Any], messages: Sequence[Mapping[str, Any]]) -> None:
        """Bring messages out of the state of an append; ids are in the order of the messages."""
        live = {"active": 1, "compacted": 0}
        ids = (row[0] for row in self.tx.all(IDS, this))
        changed = [
            (row_id, *(row[name] for name in STATE))
            for row_id, row in zip(ids, messages, strict=True)
            if any(row[name] != live.get(name) for name in STATE)
        ]
        for start in range(0, len(changed), CHUNK):
            self.tx.run(STORE_STATE, {"rows": row_list(changed[start : start + CHUNK])})


def _named(table: Table, row: Sequence[Any]) -> dict[str, Any]:
    return dict(zip(table.columns.keys(), row, strict=True))
