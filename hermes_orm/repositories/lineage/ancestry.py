"""Walks from one session along the edges of its conversation, each a recursive select by keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import (
    CTE,
    ColumnElement,
    ScalarSelect,
    Select,
    bindparam,
    case,
    cast,
    func,
    null,
    select,
)
from sqlalchemy.orm import aliased

from hermes_orm.dialects.expressions import has_key
from hermes_orm.models import Session
from hermes_orm.models.base import TEXT
from hermes_orm.repositories.lineage.lineage import SessionAlias, continued_parent_id
from hermes_orm.repositories.sessions.markers import BRANCHED_FROM, is_bound

SESSION_ID = bindparam("session_id", type_=TEXT)


def walk(name: str, start: ColumnElement[str], step: Callable[[SessionAlias], Any]) -> CTE:
    """Return rows (`id`, `next_id`) that lead along `step` from a session; the first has no id.

    At the end `next_id` is NULL. A walk that comes around a ring ends without such a row.
    """
    walked = select(
        cast(null(), Session.id.type).label("id"),
        cast(start, Session.id.type).label("next_id"),
    ).cte(name, recursive=True)
    session = aliased(Session)
    return walked.union(
        select(session.id, step(session)).join_from(
            walked, session, has_key(session.id, walked.c.next_id)
        )
    )


def end_of(walked: CTE) -> ScalarSelect[Any]:
    """Return the id of the last session of a walk; NULL when there is none."""
    return select(walked.c.id).where(walked.c.next_id.is_(None)).scalar_subquery()


def top_of(walked: CTE) -> ColumnElement[str]:
    """Return the id at the end of a walk from `:session_id`; where it enters a ring, if it does.

    That is the one session which two rows lead to.
    """
    entrance = (
        select(walked.c.next_id)
        .group_by(walked.c.next_id)
        .having(func.count() > 1)
        .scalar_subquery()
    )
    return func.coalesce(end_of(walked), entrance, SESSION_ID)


def turn_lease_key() -> ScalarSelect[str]:
    """Return the id under which the turn lease of session `:session_id` is kept.

    All segments of a compressed conversation share the id of its root; a session that carries
    nothing on, or does not exist, has its own; the sessions of a ring share the least id.
    """
    walked = walk("lease_walk", SESSION_ID, continued_parent_id)
    least = select(func.min(walked.c.id)).scalar_subquery()
    return select(func.coalesce(end_of(walked), least, SESSION_ID)).scalar_subquery()


def display_chain() -> Select[str]:
    """Select the ids of session `:session_id` and of its ancestors, up to the first branch.

    A branch owns a copy of what came before it. Every kind of edge is followed.
    """
    walked = walk("display_walk", SESSION_ID, _displayed_parent_id)
    edges = select(walked.c.next_id).where(walked.c.next_id.is_not(None))
    return edges.distinct()  # two lead to where a ring is entered


def parent_id(child: SessionAlias) -> ScalarSelect[Any]:
    """Return the id of the session's parent, of whatever kind; NULL when there is none."""
    parent = aliased(Session)
    return (
        select(parent.id)
        .where(parent.id == child.parent_session_id)
        .correlate(child)
        .scalar_subquery()
    )


def _displayed_parent_id(child: SessionAlias) -> ScalarSelect[Any]:
    parent = aliased(Session)
    return (
        select(case((~is_bound(child, parent, BRANCHED_FROM), parent.id)))
        .where(parent.id == child.parent_session_id)
        .correlate(child)
        .scalar_subquery()
    )
