"""Pages of sessions: which rows, in which order, and what each shows."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
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
from hermes_orm.dialects.expressions import bound_texts, has_key, text_list
from hermes_orm.models import Session, SessionRecency, SystemPrompt
from hermes_orm.models.base import TEXT
from hermes_orm.repositories.base import Repository
from hermes_orm.repositories.lineage import (
    SessionAlias,
    continued_parent_id,
    last_active,
    tips_of,
)
from hermes_orm.repositories.previews import first_user_text, preview_of
from hermes_orm.repositories.session_filters import SessionFilter, conditions
from hermes_orm.repositories.session_rows import (
    COMPACT_KEYS,
    SESSION_KEYS,
    compact_columns,
    session_columns,
)
from hermes_orm.rows import RichSessionRow

UNLIMITED: Final = 2**62

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


@dataclass(frozen=True, slots=True)
class Page:
    """The rows that are wanted."""

    shape: Shape
    params: Mapping[str, Any]
    limit: int
    offset: int


def page_of(
    wanted: SessionFilter,
    *,
    limit: int | None,
    offset: int | None,
    is_compact: bool,
    is_projected: bool,
    includes_pinned: bool,
) -> Page:
    """Return a page of the sessions that pass `wanted`; no or a negative limit: all of them."""
    limit = UNLIMITED if limit is None or limit < 0 else min(int(limit), UNLIMITED)
    offset = min(max(int(offset or 0), 0), UNLIMITED)
    shape = Shape(wanted.names, is_compact, is_projected, includes_pinned)
    return Page(shape, wanted.params, limit, offset)


def session_unread(session_row: Mapping[str, Any]) -> bool:
    """Return whether a session was active after it was last read; no when that is not tracked."""
    read_at = session_row.get("last_read_at")
    if read_at is None:
        return False
    active = session_row.get("last_active") or session_row.get("started_at") or 0
    return float(active) > float(read_at)


class ListingRepository(Repository):
    """Rows of `sessions` with what a list shows of their transcripts."""

    def by_start(self, page: Page) -> list[RichSessionRow]:
        """Return the page of the latest started; one statement."""
        params = {**page.params, "limit": page.limit, "offset": page.offset}
        rows = self.tx.all(_page_by_start(page.shape), params)
        return [_rich_row(page.shape.keys, row) for row in rows]

    def by_activity(self, page: Page) -> list[RichSessionRow]:
        """Return the page of the conversations that were last active."""
        ids = self._active_ids(page)
        if page.shape.includes_pinned:
            pinned = (row[0] for row in self.tx.all(_pinned_ids(page.shape.names), page.params))
            ids = list(dict.fromkeys([*ids, *pinned]))
        return self._rows_of(page.shape, ids) if ids else []

    def _active_ids(self, page: Page) -> list[str]:
        """Walk the sessions in slices, newest first, until the page is full."""
        wanted = page.offset + page.limit if page.limit else 0
        walk = _ActivityWalk()
        size = 2 * wanted
        while len(walk.found) < wanted and walk.before > -math.inf:
            params = {**page.params, "before": walk.before, "skipped": min(size, UNLIMITED) - 1}
            walk.add(self.tx.all(_recent_slice(page.shape.names), params))
            size *= 4
        return [entry.id for entry in walk.found[page.offset : wanted]]

    def _rows_of(self, shape: Shape, ids: Sequence[str]) -> list[RichSessionRow]:
        rows = self.tx.all(
            _rows_by_id(shape.is_compact, shape.is_projected), {"ids": text_list(ids)}
        )
        by_root = {row[-1]: row for row in rows}
        return [_rich_row(shape.keys, by_root[root_id]) for root_id in ids]


class _Ranked(NamedTuple):
    last_active: float
    started_at: float
    id: str


class _ActivityWalk:
    """Gives each session the latest activity of its conversation from there on.

    Slices arrive newest first. A session gives its time to itself and to what it carries on, as far
    as they have none yet: whatever comes first is the latest.
    """

    def __init__(self) -> None:
        self.found: list[_Ranked] = []
        self.before = math.inf
        self._known: set[str] = set()

    def add(self, rows: Sequence[Sequence[Any]]) -> None:
        """Take the rows of `_recent_slice`, and move on."""
        parents = {row[0]: row[1] for row in rows}
        times: dict[str, float] = {}
        for row in sorted(rows, key=lambda row: row[2], reverse=True):
            step = row[0]
            while step is not None and step not in self._known:
                self._known.add(step)
                times[step] = row[2]
                step = parents[step]
        self.found += sorted(
            (_Ranked(times[row[0]], row[3], row[0]) for row in rows if row[0] in times and row[4]),
            reverse=True,
        )
        self.before = rows[0][5] if rows else -math.inf


def _rich_row(keys: Iterable[str], row: Sequence[Any]) -> RichSessionRow:
    session: Any = dict(zip(keys, row, strict=False))
    active, text, root_id = row[-3:]
    session["last_active"] = active
    session["preview"] = preview_of(text)
    session["unread"] = session_unread(session)
    if root_id != session["id"]:
        session["_lineage_root_id"] = root_id
    listed: RichSessionRow = session
    return listed


# Statements


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
def _page_by_start(shape: Shape) -> Prepared:
    listed = _listed(shape.names, includes_pinned=shape.includes_pinned)
    rows = _rich_rows(listed, is_compact=shape.is_compact, is_projected=shape.is_projected)
    order = (listed.c.place, listed.c.started_at.desc(), listed.c.id.desc())
    return Prepared(rows.order_by(*order))


@functools.lru_cache(maxsize=4)
def _rows_by_id(is_compact: bool, is_projected: bool) -> Prepared:
    ids = bound_texts("ids").subquery()
    listed = select(cast(ids.c.value, TEXT).label("id")).cte("listed")
    return Prepared(_rich_rows(listed, is_compact=is_compact, is_projected=is_projected))


@functools.lru_cache(maxsize=256)
def _pinned_ids(names: frozenset[str]) -> Prepared:
    order = (Session.started_at.desc(), Session.id.desc())
    return Prepared(
        select(Session.id).where(Session.pinned == 1, *conditions(names)).order_by(*order)
    )


@functools.lru_cache(maxsize=256)
def _recent_slice(names: frozenset[str]) -> Prepared:
    """Select what was last active before a time: a number of sessions, and all that they carry on.

    Rows: id, id of the continued parent, `last_active`, `started_at`, whether the filter is passed,
    and the time at which the slice ends. Sessions of that time are all in.
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
