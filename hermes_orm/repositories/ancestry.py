"""Walks up from a session: the key of its turn lease, the chain that a display shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import CTE, ScalarSelect, Select, bindparam, case, cast, func, null, select
from sqlalchemy.orm import aliased

from hermes_orm.models import Session
from hermes_orm.models.base import TEXT
from hermes_orm.repositories.lineage import SessionAlias, continued_parent_id
from hermes_orm.repositories.markers import BRANCHED_FROM, is_bound

SESSION_ID = bindparam("session_id", type_=TEXT)


def turn_lease_key() -> ScalarSelect[str]:
    """Return the id under which the turn lease of session `:session_id` is kept.

    All segments of a compressed conversation share the id of its root; a session that carries
    nothing on, or does not exist, has its own; the sessions of a ring share the least id.
    """
    walk = _walk_up("lease_walk", continued_parent_id)
    root = select(walk.c.id).where(walk.c.next_id.is_(None)).scalar_subquery()
    least = select(func.min(walk.c.id)).scalar_subquery()
    return select(func.coalesce(root, least, SESSION_ID)).scalar_subquery()


def display_chain() -> Select[str]:
    """Select the ids of session `:session_id` and of its ancestors, up to the first branch.

    A branch owns a copy of what came before it. Every kind of edge is followed.
    """
    walk = _walk_up("display_walk", _displayed_parent_id)
    return select(walk.c.next_id).where(walk.c.next_id.is_not(None))


def _displayed_parent_id(child: SessionAlias) -> ScalarSelect[Any]:
    parent = aliased(Session)
    return (
        select(case((~is_bound(child, parent, BRANCHED_FROM), parent.id)))
        .where(parent.id == child.parent_session_id)
        .correlate(child)
        .scalar_subquery()
    )


def _walk_up(name: str, parent_id: Callable[[SessionAlias], ScalarSelect[Any]]) -> CTE:
    """Return rows (`id`, `next_id`) that lead from `:session_id` upwards; the first has no id."""
    walk = select(
        cast(null(), Session.id.type).label("id"),
        cast(SESSION_ID, Session.id.type).label("next_id"),
    ).cte(name, recursive=True)
    later = aliased(Session)
    return walk.union(
        select(later.id, parent_id(later)).join_from(walk, later, later.id == walk.c.next_id)
    )
