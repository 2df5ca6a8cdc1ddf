"""The statements of a page of sessions, one per shape of it."""

from __future__ import annotations

import functools
import math
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    CTE,
    BigInteger,
    ColumnElement,
    FromClause,
    Select,
    SQLColumnExpression,
    and_,
    bindparam,
    case,
    cast,
    func,
    literal,
    select,
    true,
    union_all,
)
from sqlalchemy.orm import aliased

from hermes_orm.dialects import Prepared
from hermes_orm.dialects.expressions import ascii_lower, bound_texts, has_key
from hermes_orm.models import Session, SessionRecency, SystemPrompt
from hermes_orm.models.base import TEXT
from hermes_orm.repositories.keyed import Keyed
from hermes_orm.repositories.lineage.lineage import (
    SessionAlias,
    chain_last_active,
    continued_parent_id,
    last_active,
    tip_id,
    with_carried,
)
from hermes_orm.repositories.listing.previews import first_user_text
from hermes_orm.repositories.sessions.filters import ID_QUERY, conditions, contains
from hermes_orm.repositories.sessions.rows import COMPACT_KEYS, SESSION_KEYS, session_columns

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

    @property
    def keyed(self) -> Keyed:
        """What makes the dict of a row: the keys, `last_active`, the stored text as `preview`."""
        return _keyed(self.keys)


@functools.cache
def _keyed(keys: tuple[str, ...]) -> Keyed:
    return Keyed((*keys, "last_active", "preview"))


def _listed(shape: Shape) -> FromClause:
    """Return (`id`, `started_at`, `place`) of a page; `place` 1: pinned sessions beyond it."""
    session = aliased(Session)
    eligible = select(session.id, session.started_at, literal(0).label("place")).where(
        *conditions(shape.names, session)
    )
    page = (
        eligible.order_by(session.started_at.desc(), session.id.desc())
        .limit(bindparam("limit", type_=BigInteger()))
        .offset(bindparam("offset", type_=BigInteger()))
        .cte("page")
    )
    if not shape.includes_pinned:
        return page
    beyond = eligible.with_only_columns(session.id, session.started_at, literal(1)).where(
        session.pinned == 1, session.id.not_in(select(page.c.id))
    )
    return union_all(select(page), beyond).cte("listed")


def _rich_rows(shape: Shape, root: SessionAlias) -> Select[Any]:
    """Select a row per session of `root`: its keys, `last_active`, stored text, and its own id."""
    shown: Any = aliased(Session, name="shown") if shape.is_projected else root
    prompt = aliased(SystemPrompt, name="prompt")
    columns = {key: getattr(shown if key in TIP_KEYS else root, key) for key in shape.keys}
    if not shape.is_compact:
        columns["system_prompt"] = func.coalesce(prompt.prompt, shown.system_prompt)
    statement = select(
        *columns.values(),
        func.coalesce(last_active(shown.id), shown.started_at),
        first_user_text(shown.id),
        root.id,
    ).select_from(root)
    if shape.is_projected:
        statement = statement.join(shown, has_key(shown.id, tip_id(root)))
    if not shape.is_compact:
        statement = statement.outerjoin(prompt, prompt.hash == shown.system_prompt_hash)
    return statement


@functools.lru_cache(maxsize=256)
def page_by_start(shape: Shape) -> Prepared:
    """Select the rows of `:limit` sessions after `:offset`, the latest started first."""
    root, listed = aliased(Session, name="root"), _listed(shape)
    order = (listed.c.place, listed.c.started_at.desc(), listed.c.id.desc())
    rows = _rich_rows(shape, root).join(listed, listed.c.id == root.id)
    return Prepared(rows.order_by(*order))


@functools.lru_cache(maxsize=64)
def page_by_id(shape: Shape) -> Prepared:
    """Select the rows of the `:limit` sessions whose conversation has the likest id; best first."""
    root, found = aliased(Session, name="root"), _likest(shape.names)
    rows = _rich_rows(shape, root).join(found, has_key(root.id, found.c.id))
    return Prepared(rows.order_by(*_by_likeness(found)))


def _likest(names: frozenset[str]) -> CTE:
    """Return (`id`, `rank`, `active`, `started_at`) of the sessions with the likest ids.

    Whole conversations are looked at: what has the id gives its rank to all that it carries on.
    """
    needle, text = bindparam(ID_QUERY, type_=TEXT), ascii_lower(Session.id)
    is_it, begins = text.like(needle, escape="\\"), text.startswith(needle, escape="\\")
    rank = case((is_it, 0), (begins, 1), else_=2).label("rank")
    walk = with_carried(
        select(Session.id, rank).where(contains(Session.id, ID_QUERY)), "chain_with_id"
    )
    best = func.min(walk.c.rank).label("rank")
    ranked = select(walk.c.id, best).group_by(walk.c.id).subquery("ranked")
    session = aliased(Session)
    active = func.coalesce(chain_last_active(session), session.started_at).label("active")
    found = (
        select(session.id, ranked.c.rank, active, session.started_at)
        .join_from(ranked, session, has_key(session.id, ranked.c.id))
        .where(*conditions(names - {ID_QUERY}, session))
        .subquery("found")
    )
    limit = bindparam("limit", type_=BigInteger())
    return select(found).order_by(*_by_likeness(found)).limit(limit).cte("page")


def _by_likeness(found: FromClause) -> tuple[ColumnElement[Any], ...]:
    likest = found.c
    return likest.rank, likest.active.desc(), likest.started_at.desc(), likest.id.desc()


@functools.lru_cache(maxsize=64)
def page_by_activity(names: frozenset[str]) -> Prepared:
    """Select the columns of `:limit` sessions after `:offset`, and their `last_active`, by it."""
    active = SessionRecency.last_active
    return Prepared(
        select(*session_columns(), active)
        .join_from(SessionRecency, Session, has_key(Session.id, SessionRecency.session_id))
        .outerjoin(SystemPrompt, SystemPrompt.hash == Session.system_prompt_hash)
        .where(*conditions(names))
        .order_by(active.desc(), Session.started_at.desc(), Session.id.desc())
        .limit(bindparam("limit", type_=BigInteger()))
        .offset(bindparam("offset", type_=BigInteger()))
    )


@functools.lru_cache(maxsize=8)
def rows_by_id(shape: Shape) -> Prepared:
    """Select the rows of the sessions `:ids`, in no order."""
    root = aliased(Session, name="root")
    return Prepared(_rich_rows(shape, root).where(root.id.in_(bound_texts("ids"))))


@functools.lru_cache(maxsize=256)
def pinned_ids(names: frozenset[str]) -> Prepared:
    """Select the ids of the pinned sessions that pass a filter."""
    order = (Session.started_at.desc(), Session.id.desc())
    return Prepared(
        select(Session.id).where(Session.pinned == 1, *conditions(names)).order_by(*order)
    )


@functools.lru_cache(maxsize=256)
def recent_slice(names: frozenset[str]) -> Prepared:
    """Select the sessions that were last active before a time, as steps of an activity walk.

    One more than `:skipped`, and those of the same time as the last of them.
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
    session = aliased(Session)
    return Prepared(
        select(SessionRecency.session_id, *_step(names, session), active)
        .join_from(
            SessionRecency,
            session,
            has_key(session.id, SessionRecency.session_id),
            isouter=True,  # a slice that is short is the last one
        )
        .where(is_before, active >= func.coalesce(last, -math.inf))
        .order_by(active.desc())
    )


@functools.lru_cache(maxsize=256)
def carried_on(names: frozenset[str]) -> Prepared:
    """Select the sessions `:ids` and all that they carry on, as steps of an activity walk."""
    given = bound_texts("ids").subquery()
    walk = with_carried(select(cast(given.c.value, TEXT).label("id")), "walk_up")
    session = aliased(Session)
    return Prepared(
        select(session.id, *_step(names, session)).join_from(
            walk, session, has_key(session.id, walk.c.id)
        )
    )


def _step(names: frozenset[str], session: SessionAlias) -> list[SQLColumnExpression[Any]]:
    """Return `parent_id`, `started_at`, `passes`: where to go on, and whether to list it."""
    passes = and_(true(), *conditions(names, session))
    return [continued_parent_id(session), session.started_at, passes]
