"""What belongs to hits: neighbours in their sessions, and live rows that repeat them."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import CTE, ColumnElement, Select, and_, case, or_, select, tuple_
from sqlalchemy.orm import aliased

from hermes_orm.dialects import Prepared
from hermes_orm.dialects.expressions import bound_ids, has_key, leading_text, unindexed
from hermes_orm.models import Message, Session
from hermes_orm.repositories.lineage.lineage import continued_parent_id
from hermes_orm.search.text import CONTEXT_CHARACTERS


def _repeated() -> Select[int]:
    """Select those of `:ids` that a live row of the same chain of continuations repeats."""
    columns = ("id", "session_id", "role", "content", "timestamp", "message_uid")
    hit = (
        select(*(getattr(Message, name) for name in columns))
        .where(Message.id.in_(bound_ids("ids")))
        .cte("hit")
    )
    chain = _chains(hit)
    has_same_text = and_(
        Message.timestamp == hit.c.timestamp,
        Message.role == hit.c.role,
        Message.content.is_not_distinct_from(hit.c.content),
    )
    # Scalar subqueries: PostgreSQL takes the chains for long, and would rather read all messages.
    twins = (
        select(Message.id)
        .where(Message.session_id == chain.c.id, Message.active == 1, is_same)
        .limit(1)
        .correlate(hit, chain)
        .scalar_subquery()
        for is_same in (has_same_text, Message.message_uid == hit.c.message_uid)
    )
    repeating = select(chain.c.id).where(
        chain.c.origin == hit.c.session_id, or_(*(twin.is_not(None) for twin in twins))
    )
    return select(hit.c.id).where(repeating.limit(1).correlate(hit).scalar_subquery().is_not(None))


def _chains(hit: CTE) -> CTE:
    """The sessions (`id`) of the chains of the hits' sessions (`origin`)."""
    child = aliased(Session)
    origins = select(hit.c.session_id.label("origin"), hit.c.session_id.label("id"))
    upwards = origins.cte("upwards", recursive=True)
    upwards = upwards.union(
        select(upwards.c.origin, continued_parent_id(child)).join_from(
            upwards, child, has_key(child.id, upwards.c.id)
        )
    )
    chain = select(upwards.c.origin, upwards.c.id).cte("chain", recursive=True)
    chain = chain.union(
        select(chain.c.origin, child.id)
        .join_from(chain, child, has_key(child.parent_session_id, chain.c.id))
        .where(continued_parent_id(child).is_not(None))
    )
    return chain.prefix_with("MATERIALIZED")  # else SQLite walks all chains again for each hit


REPEATED: Final = Prepared(_repeated)


def stored_content(message: type[Message], length: int) -> ColumnElement[Any]:
    """Return stored content: the first `length` characters, or all of what must be decoded."""
    is_structured = message.content < " "  # or begins with another control character
    return case((is_structured, message.content), else_=leading_text(message.content, length))


EARLIER: Final = aliased(Message, name="earlier")
LATER: Final = aliased(Message, name="later")

CONTEXT_COLUMNS: Final[tuple[Any, ...]] = tuple(
    column
    for message in (EARLIER, Message, LATER)
    for column in (message.role, stored_content(message, CONTEXT_CHARACTERS))
)
"""Role and stored content of what is before a hit, of it, and after; NULL where nothing is."""


def with_neighbours(hits: Select[Any]) -> Select[Any]:
    """Join messages with those before and after them in time, in their sessions."""
    hits = hits.outerjoin_from(Message, EARLIER, EARLIER.id == _neighbour(is_later=False))
    return hits.outerjoin_from(Message, LATER, LATER.id == _neighbour(is_later=True))


def _neighbour(*, is_later: bool) -> ColumnElement[Any]:
    near = aliased(Message)
    here, there = tuple_(Message.timestamp, Message.id), tuple_(near.timestamp, near.id)
    keys = [near.timestamp, near.id] if is_later else [near.timestamp.desc(), near.id.desc()]
    return (
        select(near.id)
        .where(
            near.session_id == Message.session_id,
            there > here if is_later else there < here,
            or_(unindexed(near.active) == 1, near.compacted == 1),
        )
        .order_by(*keys)
        .limit(1)
        .correlate(Message)
        .scalar_subquery()
    )
