"""The statements of a page of sessions, one per shape of it."""

from __future__ import annotations

import functools
import math
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    BigInteger,
    FromClause,
    Select,
    SQLColumnExpression,
    and_,
    bindparam,
    cast,
    func,
    literal,
    select,
    true,
    union_all,
)
from sqlalchemy.orm import aliased

from hermes_orm.dialects import Prepared
from hermes_orm.dialects.expressions import bound_texts, has_key
from hermes_orm.models import Session, SessionRecency, SystemPrompt
from hermes_orm.models.base import TEXT
from hermes_orm.repositories.lineage import (
    SessionAlias,
    continued_parent_id,
    last_active,
    tips_of,
)
from hermes_orm.repositories.previews import first_user_text
from hermes_orm.repositories.session_filters import conditions
from hermes_orm.repositories.session_rows import (
    COMPACT_KEYS,
    SESSION_KEYS,
    compact_columns,
    session_columns,
)

TIP_KEYS: Final = frozenset(
    {
        "id",
        "ended_at",
        "end_reason",
        "message_count",
        "tool_call_count",
        "title",
        "title_source",
        "model",
        "system_prompt",
        "system_prompt_hash",
        "cwd",
        "git_branch",
        "git_repo_root",
    }
)
"""What a compressed conversation shows of its tip; all other keys are those of its root."""


class Shape(NamedTuple):
    """What decides the text of the statements of a page; the key under which they are cached."""

    names: frozenset[str]
    is_compact: bool = False
    is_projected: bool = True
    includes_pinned: bool = False

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of a row that are columns."""
        return COMPACT_KEYS if self.is_compact else SESSION_KEYS


def _listed(names: frozenset[str], *, includes_pinned: bool) -> FromClause:
    """Return (`id`, `started_at`, `place`) of a page; `place` 1: pinned sessions beyond it."""
    session = aliased(Session)
    eligible = select(session.id, session.started_at, literal(0).label("place")).where(
        *conditions(names, session)
    )
    page = (
        eligible.order_by(session.started_at.desc(), session.id.desc())
        .limit(bindparam("limit", type_=BigInteger()))
        .offset(bindparam("offset", type_=BigInteger()))
        .cte("page")
    )
    if not includes_pinned:
        return page
    beyond = eligible.with_only_columns(session.id, session.started_at, literal(1)).where(
        session.pinned == 1, session.id.not_in(select(page.c.id))
    )
    return union_all(select(page), beyond).cte("listed")


def _rich_rows(listed: FromClause, *, is_compact: bool, is_projected: bool) -> Select[Any]:
    """Select the rows of `listed` sessions: their keys, `last_active`, text, and the listed id."""
    root, prompt = aliased(Session, name="root"), aliased(SystemPrompt, name="prompt")
    shown = aliased(Session, name="shown") if is_projected else root
    columns = compact_columns if is_compact else functools.partial(session_columns, prompt=prompt)
    keys = COMPACT_KEYS if is_compact else SESSION_KEYS
    statement = (
        select(
            *(
                of_tip if key in TIP_KEYS else of_root
                for key, of_tip, of_root in zip(keys, columns(shown), columns(root), strict=True)
            ),
            func.coalesce(last_active(shown.id), shown.started_at),
            first_user_text(shown.id),
            root.id,
        )
        .select_from(listed)
        .join(root, has_key(root.id, listed.c.id))
    )
    if is_projected:
        tip = tips_of(listed)
        statement = statement.outerjoin(tip, tip.c.root_id == root.id).join(
            shown, has_key(shown.id, func.coalesce(tip.c.id, root.id))
        )
    if not is_compact:
        statement = statement.outerjoin(prompt, prompt.hash == shown.system_prompt_hash)
    return statement


@functools.lru_cache(maxsize=256)
def page_by_start(shape: Shape) -> Prepared:
    """Select the rows of `:limit` sessions after `:offset`, the latest started first."""
    listed = _listed(shape.names, includes_pinned=shape.includes_pinned)
    rows = _rich_rows(listed, is_compact=shape.is_compact, is_projected=shape.is_projected)
    order = (listed.c.place, listed.c.started_at.desc(), listed.c.id.desc())
    return Prepared(rows.order_by(*order))


@functools.lru_cache(maxsize=4)
def rows_by_id(is_compact: bool, is_projected: bool) -> Prepared:
    """Select the rows of the sessions `:ids`, in no order."""
    ids = bound_texts("ids").subquery()
    listed = select(cast(ids.c.value, TEXT).label("id")).cte("listed")
    return Prepared(_rich_rows(listed, is_compact=is_compact, is_projected=is_projected))


@functools.lru_cache(maxsize=256)
def pinned_ids(names: frozenset[str]) -> Prepared:
    """Select the ids of the pinned sessions that pass a filter."""
    order = (Session.started_at.desc(), Session.id.desc())
    return Prepared(
        select(Session.id).where(Session.pinned == 1, *conditions(names)).order_by(*order)
    )


@functools.lru_cache(maxsize=256)
def recent_slice(names: frozenset[str]) -> Prepared:
    """Select the sessions that were last active before a time, and all that they carry on.

    Of the former, one more than `:skipped`, and those of the same time as the last of them. Rows:
    id, id of the continued parent, `last_active`, `started_at`, whether the filter is passed, and
    the time at which the slice ends.
    """
    active = SessionRecency.last_active
    is_before = active < bindparam("before")
    last = (
        select(active)
        .where(is_before)
        .order_by(active.desc())
        .limit(1)
        .offset(bindparam("skipped", type_=BigInteger()))
        .scalar_subquery()
    )
    end = select(func.coalesce(last, -math.inf).label("time")).cte("slice_end")
    session, carried = aliased(Session), aliased(Session)
    walk = (
        select(*_walked(names, session, active))
        .join_from(SessionRecency, session, has_key(session.id, SessionRecency.session_id))
        .where(is_before, active >= select(end.c.time).scalar_subquery())
        .cte("walk_up", recursive=True)
    )
    walk = walk.union(
        select(*_walked(names, carried, last_active(carried.id))).join_from(
            walk, carried, has_key(carried.id, walk.c.parent_id)
        )
    )
    return Prepared(select(walk, end.c.time).join_from(walk, end, true()))


def _walked(
    names: frozenset[str], session: SessionAlias, active: SQLColumnExpression[float]
) -> list[SQLColumnExpression[Any]]:
    return [
        session.id,
        continued_parent_id(session).label("parent_id"),
        active.label("last_active"),
        session.started_at,
        and_(true(), *conditions(names, session)).label("passes"),
    ]
