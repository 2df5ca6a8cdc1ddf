"""Sessions with their transcripts, read in portions: a few statements for many sessions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any, Final, NamedTuple, TypeVar, cast

from sqlalchemy import BigInteger, ClauseElement, Select, bindparam, func, select, tuple_
from sqlalchemy.orm import aliased

from hermes_orm.dialects import Prepared
from hermes_orm.dialects.base import ALL_ROWS, Row
from hermes_orm.dialects.expressions import bound_texts, has_key_of, text_list
from hermes_orm.errors import SessionExportTooLargeError
from hermes_orm.models import Message, Session, SystemPrompt
from hermes_orm.models.base import TEXT
from hermes_orm.repositories.base import Repository
from hermes_orm.repositories.lineage.chains import ChainRepository
from hermes_orm.repositories.lineage.lineage import last_active
from hermes_orm.repositories.messages.resume import up_to
from hermes_orm.repositories.messages.rows import MESSAGE_KEYS, decode_row
from hermes_orm.repositories.messages.transcripts import (
    BEFORE_ALL,
    FROM_ID,
    message_columns,
    session_rows,
)
from hermes_orm.repositories.portability.rows import (
    ActiveExport,
    ExportedLineage,
    ExportedSession,
)
from hermes_orm.repositories.sessions.rows import session_columns, session_row, with_times
from hermes_orm.rows import SessionRow
from hermes_orm.session_text import lookup_key, session_text

T = TypeVar("T")

MOST_SESSIONS: Final = 100_000
"""Sessions that one call exports; `iter_export` has no such limit."""
PORTION_SESSIONS: Final = 200
PORTION_MESSAGES: Final = 1_000
"""How much is read at a time; a session is never divided."""

LAST_ACTIVE: Final = func.coalesce(last_active(Session.id), Session.started_at)
LIVE_MESSAGES: Final = (
    select(func.count())
    .select_from(Message)
    .where(Message.session_id == Session.id, Message.active == 1)
    .scalar_subquery()
)
"""How many messages there are to read; the stored counter may be another program's, and wrong."""

ROWS = Prepared(
    select(LAST_ACTIVE, LIVE_MESSAGES, *session_columns())
    .outerjoin(SystemPrompt, SystemPrompt.hash == Session.system_prompt_hash)
    .where(has_key_of(Session.id, bound_texts("ids")))
)


def _messages() -> ClauseElement:
    """Select the live messages of the sessions `:ids`; ids are sorted first: rows are wide."""
    row = aliased(Message)
    is_wanted = has_key_of(row.session_id, bound_texts("ids")), row.active == 1, row.id > FROM_ID
    limit, offset = (bindparam(name, type_=BigInteger) for name in ("limit", "offset"))
    ids = select(row.id).where(*is_wanted).order_by(row.id + 0).limit(limit).offset(offset)
    return (
        select(*message_columns(MESSAGE_KEYS))
        .where(has_key_of(Message.id, ids))
        .order_by(Message.id)
    )


MESSAGES = Prepared(_messages)


def _listed(*columns: Any, of_source: bool) -> Select[Any]:
    listed = select(*columns).limit(bindparam("limit", type_=BigInteger))
    return listed.where(Session.source == bindparam("source")) if of_source else listed


@cache
def latest(*, of_source: bool) -> Prepared:
    """Select the ids of `:limit` sessions, the one that was active last first."""
    order = LAST_ACTIVE.desc(), Session.started_at.desc(), Session.id.desc()
    return Prepared(_listed(Session.id, of_source=of_source).order_by(*order))


@cache
def started_after(*, of_source: bool) -> Prepared:
    """Select `:limit` sessions that started after another one, in the order of their start."""
    order = Session.started_at, Session.id
    start = bindparam("started_at", type_=Session.started_at.type), bindparam("id", type_=TEXT)
    listed = _listed(Session.id, Session.started_at, LIVE_MESSAGES, of_source=of_source)
    return Prepared(listed.where(tuple_(*order) > tuple_(*start)).order_by(*order))


class Listed(NamedTuple):
    """A session that is to be exported, with the number of its live messages."""

    id: str
    started_at: float
    messages: int


BEFORE_FIRST: Final = Listed("", -math.inf, 0)
"""What the first session that started comes after."""


class ExportRepository(Repository):
    """Sessions as `get_session` returns them, with the `messages` of `get_messages`.

    They raise SessionExportTooLargeError for a session of more messages than `limit`; 0 is none.
    """

    def export_session(self, session_id: str, limit: int) -> ExportedSession | None:
        """Return a session."""
        key = lookup_key(session_id)
        found = [] if key is None else list(self._export([key], limit))
        return found[0][1] if found else None

    def export_session_lineage(self, session_id: str, limit: int) -> ExportedLineage | None:
        """Return the tip of a compressed conversation, with the messages of all its sessions."""
        lineage = ChainRepository(self.tx).get_compression_lineage(session_id)
        segments = [session for _, session in self._export(lineage, limit)]
        if not segments:
            return None
        messages = [message for segment in segments for message in segment["messages"]]
        return {
            **segments[-1],
            "message_count": len(messages),
            "messages": messages,
            "segments": segments,
            "lineage_session_ids": [segment["id"] for segment in segments],
        }

    def export_all(self, source: str | None, limit: int) -> list[ActiveExport]:
        """Return the sessions that were last active, of one source or of all."""
        statement = latest(of_source=source is not None)
        listed = self._list(statement, source, MOST_SESSIONS)
        return self.export_sessions((row[0] for row in listed), limit)

    def list_after(self, after: Listed, source: str | None) -> list[Listed]:
        """Return the next of the sessions that started after one, in the order of their start."""
        start = {"id": after.id, "started_at": after.started_at}
        statement = started_after(of_source=source is not None)
        return [Listed(*row) for row in self._list(statement, source, PORTION_SESSIONS, **start)]

    def export_sessions(self, ids: Iterable[str], limit: int) -> list[ActiveExport]:
        """Return those of the sessions that exist, in the order of their ids here."""
        return [
            cast(ActiveExport, with_times({**session, "last_active": last_active}))
            for last_active, session in self._export(list(ids), limit)
        ]

    def _list(
        self, statement: Prepared, source: str | None, most: int, **more: Any
    ) -> Sequence[Row]:
        return self.tx.all(statement, {"source": session_text(source), "limit": most, **more})

    def _export(self, ids: Sequence[str], limit: int) -> Iterator[tuple[float, ExportedSession]]:
        """Yield those of the sessions that exist, each with the time of its last sign of life."""
        for start in range(0, len(ids), PORTION_SESSIONS):
            given = ids[start : start + PORTION_SESSIONS]
            found = {
                row["id"]: (messages, (active, row))
                for active, messages, *columns in self.tx.all(ROWS, {"ids": text_list(given)})
                if (row := session_row(columns))
            }
            for portion in portions(found[key] for key in given if key in found):
                yield from self._with_messages(portion, limit)

    def _with_messages(
        self, rows: Sequence[tuple[float, SessionRow]], limit: int
    ) -> Iterator[tuple[float, ExportedSession]]:
        exported: dict[str, ExportedSession] = {
            row["id"]: {**row, "messages": []} for _, row in rows
        }
        for row in self._messages(list(exported), limit):
            message = decode_row(row)
            messages = exported[message["session_id"]]["messages"]
            messages.append(message)
            if 0 < limit < len(messages):
                raise SessionExportTooLargeError(message["session_id"], len(messages), limit)
        for active, session in rows:
            yield active, exported[session["id"]]

    def _messages(self, ids: Sequence[str], limit: int) -> Iterator[Row]:
        all_rows = {"from_id": BEFORE_ALL, "limit": ALL_ROWS, "offset": 0}
        if len(ids) > 1:
            return self.tx.each(MESSAGES, {**all_rows, "ids": text_list(ids)})
        one = {**all_rows, "session_id": ids[0], "limit": up_to(limit)}
        return self.tx.each(session_rows(MESSAGE_KEYS, with_inactive=False), one)


def portions(counted: Iterable[tuple[int, T]]) -> Iterator[list[T]]:
    """Divide sessions, each given with its number of messages, into what is read at once."""
    portion: list[T] = []
    messages = 0
    for count, session in counted:
        if portion and messages + count >= PORTION_MESSAGES:
            yield portion
            portion, messages = [], 0
        portion.append(session)
        messages += count
    if portion:
        yield portion
