"""Conversations as chains of sessions: where one goes on, where it began, what belongs to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from sqlalchemy import (
    ColumnElement,
    CompoundSelect,
    ScalarSelect,
    Select,
    bindparam,
    false,
    func,
    literal,
    or_,
    select,
    union_all,
)
from sqlalchemy.orm import aliased

from hermes_orm.arguments import mapping
from hermes_orm.dialects import Prepared
from hermes_orm.models import Message, Session, SystemPrompt
from hermes_orm.models.base import TEXT
from hermes_orm.repositories.base import Repository
from hermes_orm.repositories.lineage.ancestry import SESSION_ID, end_of, parent_id, top_of, walk
from hermes_orm.repositories.lineage.lineage import (
    SessionAlias,
    continued_parent_id,
    is_branch_child,
    is_continuation,
    is_fork,
    preferred_continuation_id,
)
from hermes_orm.repositories.sessions.rows import session_columns, session_row
from hermes_orm.rows import SessionRow
from hermes_orm.session_text import lookup_key, session_text

_UNSORTED = 0
"""Added to a sort key: its index would tempt PostgreSQL to look for a child among all sessions."""


def tip_of_session() -> ColumnElement[str]:
    """Return the id of the last session that carries `:session_id` on; its own when none does.

    Of a ring, which has no last one, its own, too.
    """
    down = walk("tip_walk", SESSION_ID, lambda parent: preferred_continuation_id(parent.id))
    return func.coalesce(end_of(down), SESSION_ID)


def _first_continuation_id(parent: SessionAlias) -> ScalarSelect[Any]:
    """Return the id of the first child that carries a compressed session on, or NULL."""
    child = aliased(Session)
    return (
        select(child.id)
        .where(is_continuation(child, parent))
        .order_by(child.started_at + _UNSORTED, child.id)
        .limit(1)
        .correlate(parent)
        .scalar_subquery()
    )


def _resumed_child_id(parent: SessionAlias) -> ScalarSelect[Any]:
    """Return the id of the latest child that is neither a fork nor a branch, or NULL."""
    child = aliased(Session)
    is_other = func.coalesce(or_(is_fork(child, parent), is_branch_child(child, parent)), false())
    return (
        select(child.id)
        .where(child.parent_session_id == parent.id, ~is_other)
        .order_by((child.started_at + _UNSORTED).desc(), child.id.desc())
        .limit(1)
        .correlate(parent)
        .scalar_subquery()
    )


def _tip() -> Select[Any]:
    return select(tip_of_session())


def _root() -> Select[Any]:
    return select(top_of(walk("root_walk", SESSION_ID, parent_id)))


def _resume() -> Select[Any]:
    steps = walk("resume_walk", tip_of_session(), _resumed_child_id)
    # With LIMIT, because PostgreSQL would read all messages for an EXISTS here and hash them.
    a_message = select(Message.id).where(Message.session_id == steps.c.id).limit(1)
    return select(steps.c.id, steps.c.next_id, a_message.scalar_subquery())


def _lineage() -> CompoundSelect[Any]:
    up = walk("up", SESSION_ID, continued_parent_id)
    down = walk("down", top_of(up), _first_continuation_id)
    return union_all(
        select(literal(0), up.c.id, up.c.next_id), select(literal(1), down.c.id, down.c.next_id)
    )


def _live_child() -> Select[Any]:
    child, parent = aliased(Session), aliased(Session)
    return (
        select(*session_columns(child))
        .join_from(parent, child, is_continuation(child, parent))
        .outerjoin(SystemPrompt, SystemPrompt.hash == child.system_prompt_hash)
        .where(parent.id == SESSION_ID, parent.ended_at.is_not(None), child.ended_at.is_(None))
        .limit(2)
    )


def _is_continuation() -> Select[Any]:
    columns = ("parent_session_id", "source", "model_config")
    given = select(*(bindparam(name, type_=TEXT).label(name) for name in columns)).subquery()
    parent = aliased(Session)
    return select(parent.id).where(is_continuation(cast(Any, given.c), parent))


TIP = Prepared(_tip)
ROOT = Prepared(_root)
RESUME = Prepared(_resume)
LINEAGE = Prepared(_lineage)
LIVE_CHILD = Prepared(_live_child)
IS_CONTINUATION = Prepared(_is_continuation)


def path_along(steps: Mapping[str | None, str | None]) -> list[str]:
    """Return the ids of the sessions of a walk, in its order; a ring once around."""
    path: dict[str, None] = {}
    step = steps.get(None)
    while step is not None and step in steps and step not in path:
        path[step] = None
        step = steps[step]
    return list(path)


class ChainRepository(Repository):
    """Walks over `sessions`, one statement each; whatever its length, and also in a ring."""

    def get_compression_tip(self, session_id: str) -> str | None:
        """Return the id of the last session that carries this one on; its own when none does.

        Of several children of a compressed session a compressed one comes first, then an open one,
        then the one that was last active.
        """
        tip: str | None = self.tx.scalar(TIP, {"session_id": lookup_key(session_id)})
        return session_id if tip is None else tip

    def resolve_resume_session_id(self, session_id: str) -> str:
        """Return the id of the session in which to go on: of the deepest that has messages.

        From the tip on, the latest child that is no fork and no branch is followed. Without any
        messages there it is the tip.
        """
        rows = self.tx.all(RESUME, {"session_id": lookup_key(session_id)}) if session_id else ()
        path = path_along({step: next_step for step, next_step, _ in rows})
        spoken = {step for step, _, message in rows if message is not None}
        return next((step for step in reversed(path) if step in spoken), (path or [session_id])[0])

    def get_compression_lineage(self, session_id: str) -> list[str]:
        """Return the ids of the compressed conversation that holds the session, from its root on.

        Where a session was carried on more than once, the first child is taken; if that leads past
        the given session, the result ends there. Unknown sessions have none.
        """
        key = lookup_key(session_id)
        rows = self.tx.all(LINEAGE, {"session_id": key})
        up, down = (
            path_along({step: next_step for is_down, step, next_step in rows if is_down == side})
            for side in (0, 1)
        )
        return down if key in down else up[::-1]

    def get_conversation_root(self, session_id: str) -> str:
        """Return the id at the top of all parents, of whatever kind: one id for all subagents."""
        root: str | None = self.tx.scalar(ROOT, {"session_id": lookup_key(session_id or None)})
        return session_id if root is None else root

    def find_live_compression_child(self, parent_session_id: str) -> SessionRow | None:
        """Return the open session that carries a compressed one on.

        None when there is none, or more than one.
        """
        rows = self.tx.all(LIVE_CHILD, {"session_id": lookup_key(parent_session_id)})
        return session_row(rows[0]) if len(rows) == 1 else None

    def is_compression_child_row(self, child: Mapping[str, Any] | None) -> bool:
        """Return whether a session, given as its row, carries its parent on."""
        row = mapping(child or {}, "child")
        edge = {
            "parent_session_id": lookup_key(row.get("parent_session_id")),
            "source": session_text(row.get("source") or ""),
            "model_config": session_text(row.get("model_config")),
        }
        return self.tx.first(IS_CONTINUATION, edge) is not None
