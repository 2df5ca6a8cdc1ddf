"""How sessions hang together: what kind of child a session is, and the walks along a conversation.

A conversation is a chain of *continuation edges*: its parent was compressed, and the child is no
fork. Every session has at most one parent, so a walk that meets a session again has gone around
a ring; UNION ends such walks, and they still give an answer.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    CTE,
    ColumnElement,
    ScalarSelect,
    Select,
    SQLColumnExpression,
    and_,
    case,
    cast,
    false,
    func,
    null,
    or_,
    select,
    true,
)
from sqlalchemy.orm import aliased

from hermes_orm.dialects.expressions import has_key
from hermes_orm.models import Session, SessionRecency
from hermes_orm.models.base import TEXT
from hermes_orm.repositories.sessions.end_reasons import BRANCHED, COMPRESSION, RESET_END_REASONS
from hermes_orm.repositories.sessions.markers import (
    BRANCHED_FROM,
    DELEGATE_FROM,
    RESET_FROM,
    config_marker,
    is_bound,
)

TOOL_SOURCE = "tool"

SessionAlias = type[Session]
"""The class `Session`, or an alias of it."""


# Kinds of children: `child` and `parent` are two aliases, joined by the statement.


def is_legacy_reset_child(child: SessionAlias, parent: SessionAlias) -> ColumnElement[bool]:
    """Whether the child replaced a parent that was reset, by the key they share."""
    return and_(
        or_(*(parent.end_reason == reason for reason in sorted(RESET_END_REASONS))),
        child.session_key != "",
        child.session_key == parent.session_key,
    )


def is_reset_child(child: SessionAlias, parent: SessionAlias) -> ColumnElement[bool]:
    """Whether the child is a fresh conversation that replaced its parent."""
    return or_(is_bound(child, parent, RESET_FROM), is_legacy_reset_child(child, parent))


def is_branch_child(child: SessionAlias, parent: SessionAlias) -> ColumnElement[bool]:
    """Whether the child is a visible copy that was branched off its parent."""
    return or_(
        is_bound(child, parent, BRANCHED_FROM),
        and_(parent.end_reason == BRANCHED, child.started_at >= parent.ended_at),
    )


def is_fork(child: SessionAlias, parent: SessionAlias) -> ColumnElement[bool]:
    """Whether the child began something of its own instead of carrying its parent on."""
    return or_(
        child.source == TOOL_SOURCE,
        is_bound(child, parent, BRANCHED_FROM),
        is_bound(child, parent, DELEGATE_FROM),
        is_reset_child(child, parent),
    )


def is_continuation(child: SessionAlias, parent: SessionAlias) -> ColumnElement[bool]:
    """Whether the child carries its compressed parent on."""
    return and_(
        child.parent_session_id == parent.id,
        parent.end_reason == COMPRESSION,
        child.source != TOOL_SOURCE,
        *(~is_bound(child, parent, key) for key in (BRANCHED_FROM, DELEGATE_FROM, RESET_FROM)),
    )


def is_listable(session: SessionAlias) -> ColumnElement[bool]:
    """Whether the session stands for itself in a listing: a root, a branch or a reset, no delegate.

    A session whose parent is gone counts as a root.
    """
    parent = aliased(Session)
    stands_alone = or_(is_branch_child(session, parent), is_reset_child(session, parent))
    as_child = (
        select(func.coalesce(stands_alone, false()))
        .where(parent.id == session.parent_session_id)
        .correlate(session)
        .scalar_subquery()
    )
    return and_(
        config_marker(session, DELEGATE_FROM).is_(None),
        or_(session.parent_session_id.is_(None), func.coalesce(as_child, true())),
    )


# Steps and walks


def last_active(session_id: SQLColumnExpression[str]) -> ScalarSelect[Any]:
    """Return the time of the session's last sign of life."""
    return (
        select(SessionRecency.last_active)
        .where(SessionRecency.session_id == session_id)
        .scalar_subquery()
    )


def chain_last_active(session: SessionAlias) -> ColumnElement[Any]:
    """Return the time of the last sign of life of the session, or of what carries it on."""
    start = select(session.id.label("id")).correlate(session)
    later = with_carrying(start.cte("later", recursive=True, nesting=True))
    latest = select(func.max(SessionRecency.last_active)).join_from(
        later, SessionRecency, has_key(SessionRecency.session_id, later.c.id)
    )
    return case(
        (session.end_reason == COMPRESSION, latest.scalar_subquery()),
        else_=last_active(session.id),
    )


def continued_parent_id(child: SessionAlias) -> ScalarSelect[Any]:
    """Return the id of the parent that the session carries on; NULL when there is none."""
    parent = aliased(Session)
    return (
        select(parent.id).where(is_continuation(child, parent)).correlate(child).scalar_subquery()
    )


def preferred_continuation_id(session_id: SQLColumnExpression[str]) -> ScalarSelect[Any]:
    """Return the id of the child that carries a compressed session on; NULL when there is none.

    Of several: compressed ones first, then open ones; then the last active, the latest started.
    """
    child, parent = aliased(Session), aliased(Session)
    state = case((child.end_reason == COMPRESSION, 0), (child.ended_at.is_(None), 1), else_=2)
    return (
        select(child.id)
        .join_from(parent, child, is_continuation(child, parent))
        .where(parent.id == session_id)
        .order_by(state, last_active(child.id).desc(), child.started_at.desc(), child.id.desc())
        .limit(1)
        .scalar_subquery()
    )


def tip_id(session: SessionAlias) -> ColumnElement[str]:
    """Return the id of the last session that carries this one on; its own when none does.

    Of a ring, which has no last one, its own, too.
    """
    walk = (
        select(cast(null(), TEXT).label("id"), session.id.label("next_id"))
        .correlate(session)
        .cte("walk_down", recursive=True, nesting=True)
    )
    walk = walk.union(
        select(walk.c.next_id, preferred_continuation_id(walk.c.next_id)).where(
            walk.c.next_id.is_not(None)
        )
    )
    last = select(walk.c.id).where(walk.c.next_id.is_(None)).scalar_subquery()
    return case(
        (session.end_reason == COMPRESSION, func.coalesce(last, session.id)), else_=session.id
    )


def with_carrying(start: CTE) -> CTE:
    """Return the rows (`id`) of `start`, and of all that carries them on."""
    child = aliased(Session)
    return start.union(
        select(child.id)
        .join_from(start, child, has_key(child.parent_session_id, start.c.id))
        .where(continued_parent_id(child).is_not(None))
    )


def with_carried(start: Select[Any], name: str) -> CTE:
    """Return the rows (`id`, ...) of `start`, and of all that they carry on; an id may be NULL.

    What a session carries on has its further columns.
    """
    child = aliased(Session)
    walk = start.cte(name, recursive=True)
    carried = select(continued_parent_id(child), *walk.c[1:])
    return walk.union(carried.join_from(walk, child, has_key(child.id, walk.c.id)))


def chains_holding(condition: ColumnElement[bool], name: str) -> Select[str]:
    """Select the ids of sessions for which `condition` holds, and of all that they carry on."""
    return select(with_carried(select(Session.id).where(condition), name).c.id)
