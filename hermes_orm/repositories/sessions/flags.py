"""Flags and read state: each covers a whole conversation, however often it was compressed."""

from __future__ import annotations

from functools import partial
from typing import Any

from sqlalchemy import ClauseElement, bindparam, select, union, update

from hermes_orm import clock
from hermes_orm.dialects import Prepared
from hermes_orm.dialects.expressions import has_key
from hermes_orm.models import Session
from hermes_orm.repositories.base import Repository
from hermes_orm.repositories.lineage.ancestry import SESSION_ID, walk
from hermes_orm.repositories.lineage.lineage import continued_parent_id, with_carrying
from hermes_orm.session_text import lookup_key


def _marking(**values: Any) -> ClauseElement:
    """Return the statement that sets columns of the sessions of one conversation.

    These are session `:session_id`, what it carries on, and what carries it on. Their rows are
    locked in the order of their ids: two callers may start at two ends of a conversation.
    """
    earlier = walk("earlier", SESSION_ID, continued_parent_id)
    given = select(Session.id).where(Session.id == SESSION_ID)
    later = with_carrying(given.cte("later", recursive=True))
    conversation = union(select(earlier.c.id), select(later.c.id)).subquery()
    locked = (
        select(Session.id)
        .join_from(conversation, Session, has_key(Session.id, conversation.c.id))
        .order_by(Session.id)
        .with_for_update(key_share=True, of=Session)
        .cte("locked")
    )
    changed = update(Session).where(has_key(Session.id, locked.c.id)).values(values)
    return changed.returning(Session.id)


ARCHIVE = Prepared(partial(_marking, archived=1))
UNARCHIVE = Prepared(partial(_marking, archived=0, auto_archived=0))
SET_PINNED = Prepared(partial(_marking, pinned=bindparam("value")))
SET_HIDDEN = Prepared(partial(_marking, hidden=bindparam("value")))
SET_READ = Prepared(partial(_marking, last_read_at=bindparam("value")))


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
