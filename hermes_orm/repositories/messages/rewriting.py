"""Rewriting transcripts: clearing and replacing them, and what was sent in place of a message."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from functools import partial
from typing import Any, Final, Self

from sqlalchemy import ClauseElement, bindparam, delete, select, update
from sqlalchemy.orm import aliased

from hermes_orm.codec import encode_api_content, encode_content
from hermes_orm.database import Transaction, Work
from hermes_orm.dialects import Prepared
from hermes_orm.dialects.expressions import unindexed
from hermes_orm.dialects.prepared import Params
from hermes_orm.dialects.transcript import is_open_for_appends
from hermes_orm.errors import UnknownSessionError
from hermes_orm.models import Message, Session
from hermes_orm.repositories.base import Plans, Repository
from hermes_orm.repositories.lineage.ancestry import SESSION_ID
from hermes_orm.repositories.messages.messages import MessageRepository
from hermes_orm.repositories.messages.undo import LOCK_SESSION
from hermes_orm.rows import Content
from hermes_orm.session_text import lookup_key

_OWN: Final = Message.session_id == SESSION_ID
_LIVE: Final = (_OWN, unindexed(Message.active) == 1)


def _count_nothing(*, if_open: bool) -> ClauseElement:
    """Set the counters to 0, which locks the session."""
    conditions = [is_open_for_appends()] if if_open else []
    return (
        update(Session)
        .where(Session.id == SESSION_ID, *conditions)
        .values(message_count=0, tool_call_count=0)
    )


def _set_api_content() -> ClauseElement:
    newest = aliased(Message)
    is_newest = (
        select(newest.id)
        .where(newest.session_id == SESSION_ID, unindexed(newest.active) == 1)
        .where(newest.role == "user")
        .order_by(newest.id.desc())
        .limit(1)
        .scalar_subquery()
    )
    return (
        update(Message)
        .where(Message.id == is_newest)
        .where(Message.content.is_not_distinct_from(bindparam("content")))
        .values(api_content=bindparam("api_content"))
    )


EMPTY = Prepared(partial(_count_nothing, if_open=False))
EMPTY_IF_OPEN = Prepared(partial(_count_nothing, if_open=True))
SET_API_CONTENT = Prepared(_set_api_content)


class Dropping(Enum):
    """What becomes of the rows that a transcript had."""

    ALL = Prepared(delete(Message).where(_OWN))
    """All are deleted."""
    LIVE = Prepared(delete(Message).where(*_LIVE))
    """Live ones are deleted."""
    UNDONE = Prepared(update(Message).where(*_LIVE).values(active=0))
    """Live ones become undone; no archives, which would still be found and own their input."""

    @classmethod
    def of(cls, *, active_only: bool, archive_dropped: bool) -> Self:
        """Return what the arguments of `replace_messages` ask for."""
        if archive_dropped:
            return cls.UNDONE
        return cls.LIVE if active_only else cls.ALL


class RewritingRepository(Repository):
    """Rows of `messages` that give way to others."""

    def clear_messages(self, session_id: str) -> None:
        """Delete all messages of the session, whatever their state, also of a compressed one."""
        this = {"session_id": lookup_key(session_id)}
        if self.tx.run(EMPTY, this):
            self.tx.run(Dropping.ALL.value, this)

    def replace(self, rows: Sequence[Params], total: Params, dropping: Dropping) -> None:
        """Put encoded rows in the place of a transcript; no rows may go to an unknown session."""
        messages = MessageRepository(self.tx)
        if not self.tx.run(EMPTY_IF_OPEN, total):
            refusal = messages.refusal(total["session_id"], None)
            if rows or not isinstance(refusal, UnknownSessionError):
                raise refusal
            return
        self.tx.run(dropping.value, total)
        if rows:
            messages.extend(rows, total, None)


class RewritingPlans(Plans):
    """Changes of stored messages whose values are encoded before the transaction."""

    def set_latest_user_api_content(
        self, session_id: str, content: Content, api_content: str | None
    ) -> Work[int]:
        """Note what was sent to the provider in place of the latest live user message.

        Only if `content` is exactly what that message has: return 1 then, else 0. None removes
        the note; other types raise TypeError.
        """
        if not isinstance(api_content, str | None):
            raise TypeError("api_content must be text or None; encode it first, as with json.dumps")
        marker = self.dialect.content_marker
        params: dict[str, Any] = {
            "session_id": lookup_key(session_id),
            "content": encode_content(marker, content),
            "api_content": encode_api_content(marker, api_content),
        }

        def work(tx: Transaction) -> int:
            tx.first(LOCK_SESSION, params)
            return tx.run(SET_API_CONTENT, params)

        return work
