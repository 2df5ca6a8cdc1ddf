"""Undoing turns, and taking that back: rows stay stored and only change their state."""

from __future__ import annotations

from typing import Any, Final, cast

from sqlalchemy import BigInteger, ClauseElement, bindparam, exists, func, select, update
from sqlalchemy.orm import aliased

from hermes_orm.codec import count_tool_calls, decode_content, decode_tool_calls, encode_integer
from hermes_orm.database import Transaction
from hermes_orm.dialects import Prepared
from hermes_orm.dialects.base import ALL_ROWS
from hermes_orm.dialects.expressions import unindexed
from hermes_orm.dialects.prepared import Params
from hermes_orm.errors import shown
from hermes_orm.models import Message, Session
from hermes_orm.repositories.base import Repository
from hermes_orm.repositories.lineage.ancestry import SESSION_ID
from hermes_orm.repositories.messages.lookups import LATEST_LIVE
from hermes_orm.repositories.messages.rows import MESSAGE_KEYS
from hermes_orm.repositories.messages.transcripts import (
    BEFORE_ALL,
    id_bound,
    message_columns,
    session_rows,
)
from hermes_orm.rows import MessageRow, RewindResult
from hermes_orm.session_text import lookup_key

_FIRST_ID: Final = bindparam("first_id", type_=BigInteger)
_FROM_FIRST: Final = (Message.session_id == SESSION_ID, Message.id >= _FIRST_ID)


def _restore() -> ClauseElement:
    """Make undone rows live, except what a live row repeats: by an index for each of the keys."""
    live = aliased(Message)
    is_other = (live.session_id == SESSION_ID, live.active == 1)
    has_uid = exists().where(*is_other, live.message_uid == Message.message_uid)
    is_equal = exists().where(
        *is_other,
        live.timestamp == Message.timestamp,
        live.role == Message.role,
        live.content.is_not_distinct_from(Message.content),
    )
    return (
        update(Message)
        .where(*_FROM_FIRST, unindexed(Message.active) == 0, Message.compacted == 0)
        .where(~has_uid.correlate(Message), ~is_equal.correlate(Message))
        .values(active=1)
    )


LOCK_SESSION = Prepared(
    select(Session.id).where(Session.id == SESSION_ID).with_for_update(key_share=True)
)
TARGET = Prepared(
    select(*message_columns(MESSAGE_KEYS)).where(
        Message.id == _FIRST_ID, Message.session_id == SESSION_ID
    )
)
UNDO = Prepared(
    update(Message).where(*_FROM_FIRST, unindexed(Message.active) == 1).values(active=0)
)
RESTORE = Prepared(_restore)
STORE_TOTALS = Prepared(
    update(Session)
    .where(Session.id == SESSION_ID)
    .values(
        message_count=bindparam("message_count"),
        tool_call_count=bindparam("tool_call_count"),
        rewind_count=func.coalesce(Session.rewind_count, 0)
        + bindparam("rewinds", type_=BigInteger),
    )
)


def live_totals(tx: Transaction, session_id: str) -> Params:
    """Return what the counters of a session, which is locked, must say of its live rows."""
    statement = session_rows(("id", "tool_calls"), with_inactive=False)
    params = {"session_id": session_id, "from_id": BEFORE_ALL, "limit": ALL_ROWS, "offset": 0}
    rows = calls = 0
    for _, stored in tx.each(statement, params):
        rows += 1
        calls += count_tool_calls(decode_tool_calls(stored))
    return {"message_count": rows, "tool_call_count": calls}


class UndoRepository(Repository):
    """Rows of `messages` that were undone. Counters follow; leases and locks do not matter."""

    def rewind_to_message(self, session_id: str, target_message_id: int) -> RewindResult:
        """Undo a user message and all that came after it.

        Returns how many live messages that were, the message as its row was (of the JSON columns
        the stored text), and the id of the latest message left. Raises ValueError when the session
        has no such message, or its role is another one.
        """
        this = {"session_id": lookup_key(session_id), "first_id": encode_integer(target_message_id)}
        self.tx.first(LOCK_SESSION, this)
        row = self.tx.first(TARGET, this)
        if row is None:
            raise ValueError(
                f"message {this['first_id']} not found in session {shown(session_id)};"
                " pass an id of list_recent_user_messages"
            )
        target = dict(zip(MESSAGE_KEYS, row, strict=True))
        if target["role"] != "user":
            raise ValueError(
                f"message {this['first_id']} must be a 'user' message to rewind to;"
                " pass an id of list_recent_user_messages"
            )
        undone = self.tx.run(UNDO, this)
        self._store_totals(this, rewinds=1)
        return {
            "rewound_count": undone,
            "target_message": cast(
                MessageRow, {**target, "content": decode_content(target["content"])}
            ),
            "new_head_id": self.tx.scalar(LATEST_LIVE, this),
        }

    def restore_rewound(self, session_id: str, since_message_id: int) -> int:
        """Bring undone messages from an id on back; return how many.

        What compaction has archived stays archived, and what a live message repeats stays undone:
        one of the same role, content and time, or a copy of it.
        """
        this = {"session_id": lookup_key(session_id), "first_id": id_bound(since_message_id)}
        if self.tx.first(LOCK_SESSION, this) is None:
            return 0
        restored = self.tx.run(RESTORE, this)
        self._store_totals(this)
        return restored

    def _store_totals(self, this: Any, *, rewinds: int = 0) -> None:
        totals = live_totals(self.tx, this["session_id"])
        self.tx.run(STORE_TOTALS, {**this, **totals, "rewinds": rewinds})
