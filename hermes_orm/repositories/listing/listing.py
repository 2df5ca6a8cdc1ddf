"""Pages of sessions: which rows, in which order, and what each shows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from hermes_orm.dialects.expressions import text_list
from hermes_orm.repositories.base import Repository
from hermes_orm.repositories.keyed import Keyed
from hermes_orm.repositories.listing.previews import preview_of
from hermes_orm.repositories.listing.statements import (
    Shape,
    carried_on,
    page_by_activity,
    page_by_id,
    page_by_start,
    pinned_ids,
    recent_slice,
    rows_by_id,
)
from hermes_orm.repositories.paging import UNLIMITED, row_limit, row_offset
from hermes_orm.repositories.sessions.filters import ID_QUERY, SessionFilter, session_filter
from hermes_orm.repositories.sessions.rows import SESSION_KEYS, with_times
from hermes_orm.rows import ActiveSessionRow, RichSessionRow
from hermes_orm.session_text import lookup_key

Rows = Sequence[Sequence[Any]]


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
    shape = Shape(wanted.names, is_compact, is_projected, includes_pinned)
    return Page(shape, wanted.params, row_limit(limit), row_offset(offset))


def session_unread(session_row: Mapping[str, Any]) -> bool:
    """Return whether a session was active after it was last read; no when that is not tracked."""
    read_at = session_row.get("last_read_at")
    if read_at is None:
        return False
    active = session_row.get("last_active") or session_row.get("started_at") or 0
    return float(active) > float(read_at)


class ListingRepository(Repository):
    """Rows of `sessions` with what a list shows of their transcripts."""

    def get_session_rich_row(
        self, session_id: str, compact_rows: bool = False
    ) -> RichSessionRow | None:
        """Return the session as a list shows it, not as its tip; None for an unknown id."""
        key = lookup_key(session_id)
        shape = Shape(frozenset(), bool(compact_rows), is_projected=False)
        rows = self.tx.all(rows_by_id(shape), {"ids": text_list([key])}) if key else ()
        return next(iter(_rich_rows(shape, rows)), None)

    def search_sessions(
        self,
        source: str | None = None,
        limit: int | None = 20,
        offset: int = 0,
        workspace_key: str | None = None,
    ) -> list[ActiveSessionRow]:
        """Return a page of sessions of all kinds, the last active first.

        Archived and hidden ones, children and subagents are among them. `workspace_key` is a
        repository, or a directory for sessions without one. No or a negative limit: all rows.
        """
        wanted = session_filter(
            source=source,
            workspace_key=workspace_key,
            include_archived=True,
            include_hidden=True,
            include_children=True,
        )
        window = {"limit": row_limit(limit), "offset": row_offset(offset)}
        rows = self.tx.all(page_by_activity(wanted.names), {**wanted.params, **window})
        keys = (*SESSION_KEYS, "last_active")
        sessions = (with_times(dict(zip(keys, row, strict=True))) for row in rows)
        return [cast(ActiveSessionRow, session) for session in sessions]

    def search_sessions_by_id(
        self,
        query: str | None,
        limit: int | None = 20,
        include_archived: bool = True,
        source: str | None = None,
        sources: Iterable[str] | None = None,
        exclude_sources: Iterable[str] | None = None,
    ) -> list[RichSessionRow]:
        """Return the conversations with an id that holds `query`, as `list_sessions_rich` does.

        Those with an id that equals it come first, then those with one that begins with it; of the
        same rank, the last active. Case does not count. Nothing for a blank query.
        """
        wanted = session_filter(
            include_archived=include_archived,
            source=source,
            sources=sources,
            exclude_sources=exclude_sources,
            id_query=query,
        )
        if ID_QUERY not in wanted.names or (limit is not None and limit <= 0):
            return []
        shape = Shape(wanted.names)
        rows = self.tx.all(page_by_id(shape), {**wanted.params, "limit": row_limit(limit)})
        return _rich_rows(shape, rows)

    def by_start(self, page: Page) -> list[RichSessionRow]:
        """Return the page of the latest started; one statement."""
        params = {**page.params, "limit": page.limit, "offset": page.offset}
        rows = self.tx.all(page_by_start(page.shape), params)
        return _rich_rows(page.shape, rows)

    def by_activity(self, page: Page) -> list[RichSessionRow]:
        """Return the page of the conversations that were last active."""
        ids = self._active_ids(page)
        if page.shape.includes_pinned:
            pinned = (row[0] for row in self.tx.all(pinned_ids(page.shape.names), page.params))
            ids = list(dict.fromkeys([*ids, *pinned]))
        return self._rows_of(page.shape, ids) if ids else []

    def by_ids(self, ids: Sequence[str]) -> list[RichSessionRow]:
        """Return these sessions as they are, in the order of the ids."""
        shape = Shape(frozenset(), is_projected=False)
        return self._rows_of(shape, ids) if ids else []

    def _active_ids(self, page: Page) -> list[str]:
        """Walk the sessions in slices, newest first, until the page is full."""
        names, walk = page.shape.names, _ActivityWalk()
        wanted = page.offset + page.limit if page.limit else 0
        size, before = min(2 * wanted, UNLIMITED), math.inf
        while len(walk.found) < wanted:
            position = {"before": before, "skipped": size - 1}
            sliced = self.tx.all(recent_slice(names), {**page.params, **position})
            missing = walk.missing(sliced)
            start = {**page.params, "ids": text_list(missing)}
            walk.add(sliced, self.tx.all(carried_on(names), start) if missing else [])
            if len(sliced) < size:
                break
            size, before = min(8 * size, UNLIMITED), sliced[-1][-1]
        return [entry.id for entry in walk.found[page.offset : wanted]]

    def _rows_of(self, shape: Shape, ids: Sequence[str]) -> list[RichSessionRow]:
        rows = self.tx.all(
            rows_by_id(Shape(frozenset(), shape.is_compact, shape.is_projected)),
            {"ids": text_list(ids)},
        )
        by_root = {row[-1]: row for row in rows}
        return _rich_rows(shape, (by_root[root_id] for root_id in ids))


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
        self._known: set[str] = set()

    def missing(self, sliced: Rows) -> set[str]:
        """Return the ids of sessions that the slice carries on, and that are still to be read."""
        parents = {row[1] for row in sliced if row[1] is not None}
        return parents - self._known - {row[0] for row in sliced}

    def add(self, sliced: Rows, carried: Rows) -> None:
        """Take the rows of `recent_slice`, and those of `carried_on` for what is missing."""
        steps = {row[0]: row for row in (*carried, *sliced)}
        entries = []
        for row in sliced:
            step: Sequence[Any] | None = row
            while step is not None and step[0] not in self._known:
                session_id, parent_id, started_at, passes = step[:4]
                self._known.add(session_id)
                if passes:
                    entries.append(_Ranked(row[-1], started_at, session_id))
                step = steps.get(parent_id)
        self.found += sorted(entries, reverse=True)


def _rich_rows(shape: Shape, rows: Iterable[Sequence[Any]]) -> list[RichSessionRow]:
    keyed = shape.keyed
    return [_rich_row(keyed, row) for row in rows]


def _rich_row(keyed: Keyed, row: Sequence[Any]) -> RichSessionRow:
    session: Any = keyed(row)
    session["preview"] = preview_of(session["preview"])
    session["unread"] = session_unread(with_times(session))
    if row[-1] != session["id"]:
        session["_lineage_root_id"] = row[-1]
    listed: RichSessionRow = session
    return listed
