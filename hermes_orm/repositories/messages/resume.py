"""Resuming a session: its transcript as a model goes on with it, and as a user sees it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from sqlalchemy import BigInteger, ClauseElement, Select, bindparam, func, select

from hermes_orm.dialects import Prepared
from hermes_orm.dialects.base import ALL_ROWS, Row
from hermes_orm.dialects.expressions import has_key, unindexed
from hermes_orm.errors import SessionResumeTooLargeError
from hermes_orm.models import Message
from hermes_orm.repositories.base import Repository
from hermes_orm.repositories.lineage.ancestry import SESSION_ID, display_chain
from hermes_orm.repositories.messages.alternation import repair_alternation
from hermes_orm.repositories.messages.projection import CONVERSATION_COLUMNS, Projection
from hermes_orm.repositories.messages.transcripts import BEFORE_ALL, displayed_rows
from hermes_orm.rows import ConversationMessage
from hermes_orm.session_text import lookup_key

_COLUMNS: Final = (*CONVERSATION_COLUMNS, "session_id")


def _counted(rows: Select[int]) -> ClauseElement:
    """Count live rows, up to `:limit` of them."""
    live = rows.where(unindexed(Message.active) == 1).limit(bindparam("limit", type_=BigInteger))
    return select(func.count()).select_from(live.subquery())


def _count_displayed() -> ClauseElement:
    chain = display_chain().subquery()
    is_shown = has_key(Message.session_id, chain.c.next_id)
    return _counted(select(Message.id).join_from(chain, Message, is_shown))


COUNT_OWN = Prepared(_counted(select(Message.id).where(Message.session_id == SESSION_ID)))
COUNT_DISPLAYED = Prepared(_count_displayed)


class ResumeRepository(Repository):
    """Live rows of `messages` of a session and of those it descends from, up to a branch."""

    def get_resume_conversations(
        self, session_id: str, limit: int
    ) -> tuple[list[ConversationMessage], list[ConversationMessage]]:
        """Return what a model gets, and what is shown; raise when that is more than `limit`.

        A limit of 0 is none.
        """
        key = lookup_key(session_id)
        model = Projection(with_row_ids=True)
        display = Projection(deduplicate=True, with_row_ids=True)
        rows = 0
        for row in self._displayed(key, most=up_to(limit)):
            rows += 1
            display.add((row,))
            if row[-1] == key:
                model.add((row,))
        if 0 < limit < rows:
            raise SessionResumeTooLargeError(rows, limit)
        return repair_alternation(model.messages), display.messages

    def get_ancestor_display_prefix(self, session_id: str) -> list[ConversationMessage]:
        """Return the live messages shown before those of the session itself: of its ancestors.

        None for a root, a branch or an unknown session.
        """
        key = lookup_key(session_id)
        projection = Projection(deduplicate=True)
        projection.add(self._displayed(key, of_ancestors=True))
        return projection.messages

    def get_resume_message_count(self, session_id: str) -> int:
        """Return how many messages resuming the session would read."""
        return self.count_displayed(session_id, ALL_ROWS)

    def count_displayed(self, session_id: str, most: int) -> int:
        """Count the messages that resuming the session would read, up to a number of them."""
        return int(self.tx.scalar(COUNT_DISPLAYED, _this(session_id, most)))

    def count_own(self, session_id: str, most: int) -> int:
        """Count the live messages of the session alone, up to a number of them."""
        return int(self.tx.scalar(COUNT_OWN, _this(session_id, most)))

    def _displayed(
        self, key: str | None, *, most: int = ALL_ROWS, of_ancestors: bool = False
    ) -> Iterator[Row]:
        statement = displayed_rows(_COLUMNS, with_inactive=False, of_ancestors=of_ancestors)
        this = {"session_id": key, "from_id": BEFORE_ALL, "limit": most, "offset": 0}
        return self.tx.each(statement, this)


def up_to(limit: int) -> int:
    """Return how many messages to read: one more than the limit shows that it is exceeded."""
    return min(limit + 1, ALL_ROWS) if limit else ALL_ROWS


def _this(session_id: str, most: int) -> dict[str, Any]:
    return {"session_id": lookup_key(session_id), "limit": most}
