"""Flags and read state: each covers a whole conversation, however often it was compressed."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from sqlalchemy import ClauseElement, ColumnElement, FromClause, bindparam, select, union, update

from hermes_orm import clock
from hermes_orm.dialects import Prepared
from hermes_orm.dialects.expressions import has_key, unindexed
from hermes_orm.models import Session
from hermes_orm.repositories.base import Repository
from hermes_orm.repositories.lineage.ancestry import SESSION_ID
from hermes_orm.repositories.lineage.lineage import with_carried, with_carrying
from hermes_orm.session_text import lookup_key


def marking(start: ColumnElement[bool], **values: Any) -> ClauseElement:
    """Return the statement that sets columns of the sessions of whole conversations.

    These are the sessions that meet `start`, what they carry on, and what carries them on.
    """
    return changing(conversations(start), values)


def conversations(start: ColumnElement[bool]) -> FromClause:
    """Return the `id` of every session of the conversations of those that meet `start`."""
    given = select(Session.id).where(start)
    earlier = with_carried(given, "earlier")
    later = with_carrying(given.cte("later", recursive=True))
    return union(select(earlier.c.id), select(later.c.id)).subquery()


def changing(sessions: FromClause, values: Mapping[str, Any]) -> ClauseElement:
    """Return the statement that sets columns of the sessions with an `id` in `sessions`.

    Their rows are locked in the order of their ids: two callers may start at two ends of a
    conversation.
    """
    locked = (
        select(Session.id)
        .join_from(sessions, Session, has_key(Session.id, sessions.c.id))
        .order_by(unindexed(Session.id))
        .with_for_update(key_share=True, of=Session)
        .cte("locked")
    )
    changed = update(Session).where(has_key(Session.id, locked.c.id)).values(values)
    return changed.returning(Session.id)


_THIS = Session.id == SESSION_ID

ARCHIVE = Prepared(partial(marking, _THIS, archived=1))
UNARCHIVE = Prepared(partial(marking, _THIS, archived=0, auto_archived=0))
SET_PINNED = Prepared(partial(marking, _THIS, pinned=bindparam("value")))
SET_HIDDEN = Prepared(partial(marking, _THIS, hidden=bindparam("value")))
SET_READ = Prepared(partial(marking, _THIS, last_read_at=bindparam("value")))


class FlagRepository(Repository):
    """Flags of conversations. Forks have their own: neither way do flags cross to a fork."""

    def set_session_archived(self, session_id: str, archived: bool) -> bool:
        """Archive the session's conversation, or bring it back; False when there is no such id."""
        return self._mark(ARCHIVE if archived else UNARCHIVE, session_id)

    def set_session_pinned(self, session_id: str, pinned: bool) -> bool:
        """Pin the session's conversation, or let it go; False when there is no such id."""
        return self._mark(SET_PINNED, session_id, int(bool(pinned)))

    def set_session_hidden(self, session_id: str, hidden: bool) -> bool:
        """Hide the session's conversation, or show it; False when there is no such id."""
        return self._mark(SET_HIDDEN, session_id, int(bool(hidden)))

    def set_session_read(self, session_id: str, read: bool = True) -> bool:
        """Mark the session's conversation as read now, or as unread; False for an unknown id."""
        return self._mark(SET_READ, session_id, clock.now() if read else 0.0)

    def _mark(self, statement: Prepared, session_id: str, value: float | None = None) -> bool:
        params = {"session_id": lookup_key(session_id), "value": value}
        return self.tx.first(statement, params) is not None
