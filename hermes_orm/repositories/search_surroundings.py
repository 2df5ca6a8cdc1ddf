"""What belongs to hits: neighbours in their sessions, and live rows that repeat them."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import ColumnElement, Select, and_, or_, select, tuple_
from sqlalchemy.orm import aliased

from hermes_orm.dialects import Prepared
from hermes_orm.dialects.expressions import bound_ids, has_key, unindexed
from hermes_orm.models import Message, Session
from hermes_orm.repositories.lineage import is_continuation
from hermes_orm.repositories.search_statements import stored_content
from hermes_orm.search.text import CONTEXT_CHARACTERS


def _repeated() -> Select[int]:
    """Select those of `:ids` that a live row of the same chain of continuations repeats."""
    hit, twin = aliased(Message, name="hit"), aliased(Message, name="twin")
    near, far = aliased(Session), aliased(Session)
    chain = (
        select(hit.session_id.label("origin"), hit.session_id.label("session_id"))
        .where(hit.id.in_(bound_ids("ids")))
        .distinct()
        .cte("chain", recursive=True)
    )
    chain = chain.union(
        select(chain.c.origin, far.id)
        .join_from(chain, near, has_key(near.id, chain.c.session_id))
        .join(far, or_(far.id == near.parent_session_id, far.parent_session_id == near.id))
        .where(or_(is_continuation(near, far), is_continuation(far, near)))
    )
    is_live_in_chain = and_(twin.session_id == chain.c.session_id, twin.active == 1)
    has_same_text = and_(
        twin.timestamp == hit.timestamp,
        twin.role == hit.role,
        twin.content.is_not_distinct_from(hit.content),
    )
    twins = (
        select(twin.id)
        .join_from(chain, twin, and_(is_live_in_chain, is_same))
        .where(chain.c.origin == hit.session_id)
        .correlate(hit)
        for is_same in (has_same_text, twin.message_uid == hit.message_uid)
    )
    return select(hit.id).where(
        hit.id.in_(bound_ids("ids")), or_(*(found.exists() for found in twins))
    )


REPEATED: Final = Prepared(_repeated())


def _context() -> Select[Any]:
    """Select each of `:ids` and its neighbours in time: id of the hit, role and stored content."""
    hit = aliased(Message, name="hit")

    def neighbour(*, is_later: bool) -> ColumnElement[Any]:
        near = aliased(Message)
        here, there = tuple_(hit.timestamp, hit.id), tuple_(near.timestamp, near.id)
        keys = [near.timestamp, near.id] if is_later else [near.timestamp.desc(), near.id.desc()]
        return (
            select(near.id)
            .where(
                near.session_id == hit.session_id,
                there > here if is_later else there < here,
                or_(unindexed(near.active) == 1, near.compacted == 1),
            )
            .order_by(*keys)
            .limit(1)
            .correlate(hit)
            .scalar_subquery()
        )

    hits = (
        select(
            hit.id,
            neighbour(is_later=False).label("before"),
            neighbour(is_later=True).label("after"),
        )
        .where(hit.id.in_(bound_ids("ids")))
        .cte("hits")
    )
    return (
        select(hits.c.id, Message.role, stored_content(CONTEXT_CHARACTERS))
        .join_from(hits, Message, Message.id.in_([hits.c.id, hits.c.before, hits.c.after]))
        .order_by(hits.c.id, Message.timestamp, Message.id)
    )


CONTEXT: Final = Prepared(_context())
