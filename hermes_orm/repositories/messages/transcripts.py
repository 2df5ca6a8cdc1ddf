"""Transcripts: the rows of a session, read in the order of their ids."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Select,
    SQLColumnExpression,
    bindparam,
    or_,
    select,
)
from sqlalchemy.orm import aliased

from hermes_orm.arguments import whole_number
from hermes_orm.dialects import Prepared
from hermes_orm.dialects.base import ALL_ROWS
from hermes_orm.dialects.expressions import has_key, has_key_of, is_beyond, unindexed
from hermes_orm.models import Message
from hermes_orm.repositories.base import Repository
from hermes_orm.repositories.lineage.ancestry import SESSION_ID, display_chain
from hermes_orm.repositories.messages.rows import MESSAGE_KEYS, decode_row
from hermes_orm.repositories.paging import row_limit
from hermes_orm.rows import MessageRow

FROM_ID: Final = bindparam("from_id", type_=BigInteger)
BEFORE_ALL: Final = -(2**63)
"""A row id that every other one comes after."""


@lru_cache
def session_rows(
    columns: tuple[str, ...], *, with_inactive: bool, newest_first: bool = False
) -> Prepared:
    """Return the statement that reads a session's rows in order, for `Transaction.each`."""
    is_wanted = is_beyond(Message, SESSION_ID, FROM_ID, before=newest_first)
    statement = select(*message_columns(columns)).where(is_wanted)
    if not with_inactive:
        statement = statement.where(unindexed(Message.active) == 1)
    return Prepared(_page(statement, *in_session_order(Message, newest_first=newest_first)))


@lru_cache
def displayed_rows(
    columns: tuple[str, ...], *, with_inactive: bool, of_ancestors: bool = False
) -> Prepared:
    """Return the statement that reads the rows of a session and its ancestors in order.

    `of_ancestors` leaves out those of the session itself.

    Ids are sorted first, because rows are wide; as an expression, because their index would tempt
    PostgreSQL to look for the rows of a few sessions among all messages.
    """
    row, chain = aliased(Message), display_chain().subquery()
    is_shown = has_key(row.session_id, chain.c.next_id)
    ids = select(row.id).join_from(chain, row, is_shown).where(row.id > FROM_ID)
    if not with_inactive:
        ids = ids.where(unindexed(row.active) == 1)
    if of_ancestors:
        ids = ids.where(row.session_id != SESSION_ID)
    statement = select(*message_columns(columns)).where(
        has_key_of(Message.id, _page(ids, row.id + 0))
    )
    return Prepared(statement.order_by(Message.id))


def message_columns(names: tuple[str, ...]) -> list[ColumnElement[Any]]:
    """Return columns of `messages` by their names in the table."""
    return [Message.__table__.c[name] for name in names]


def id_bound(row_id: int) -> int:
    """Return a row id to compare with, however large."""
    return max(BEFORE_ALL, min(whole_number(row_id, "a row id"), ALL_ROWS))


def is_visible(message: type[Message]) -> ColumnElement[bool]:
    """Whether a message is live, or archived by compaction; undone ones are neither."""
    return or_(unindexed(message.active) == 1, message.compacted == 1)


def in_session_order(
    message: type[Message], *, newest_first: bool = False
) -> list[SQLColumnExpression[Any]]:
    """Return what pages of one session are ordered by, next to `is_beyond`."""
    columns = (message.session_id, message.id)
    return [column.desc() if newest_first else column for column in columns]


def _page(statement: Select[Any], *order: SQLColumnExpression[Any]) -> Select[Any]:
    limit, offset = (bindparam(name, type_=BigInteger) for name in ("limit", "offset"))
    return statement.order_by(*order).limit(limit).offset(offset)


@dataclass(frozen=True, slots=True)
class Page:
    """Which rows of a session to read, counted from the oldest or from the newest."""

    with_inactive: bool
    newest_first: bool
    from_id: int
    limit: int
    offset: int

    @classmethod
    def of(
        cls,
        *,
        include_inactive: bool,
        limit: int | None,
        offset: int,
        latest: bool,
        after_id: int | None,
    ) -> Page:
        """Return the page for the arguments of `get_messages`."""
        skipped = max(0, whole_number(offset, "offset"))
        if after_id is not None and (latest or skipped):
            raise ValueError("after_id is incompatible with latest and offset; leave them out")
        start = BEFORE_ALL if after_id is None else id_bound(after_id)
        return cls(
            with_inactive=bool(include_inactive),
            newest_first=bool(latest),
            from_id=ALL_ROWS if latest else start,
            limit=row_limit(limit),
            offset=min(skipped, ALL_ROWS),
        )


class TranscriptRepository(Repository):
    """Rows of `messages`, as they are stored."""

    def get_messages(self, session_id: str, page: Page) -> list[MessageRow]:
        """Return the rows of a page, in the order of their ids."""
        statement = session_rows(
            MESSAGE_KEYS, with_inactive=page.with_inactive, newest_first=page.newest_first
        )
        params = {
            "session_id": session_id,
            "from_id": page.from_id,
            "limit": page.limit,
            "offset": page.offset,
        }
        messages = [decode_row(row) for row in self.tx.each(statement, params)]
        if page.newest_first:
            messages.reverse()
        return messages
