"""Finding messages by their text."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cache
from operator import itemgetter
from typing import Any, Final, cast

from sqlalchemy import or_, select

from hermes_orm.codec import decode_content
from hermes_orm.dialects import Prepared
from hermes_orm.dialects.base import Row
from hermes_orm.dialects.expressions import id_list
from hermes_orm.dialects.indexing import REBUILD, Gap
from hermes_orm.dialects.search import SearchIndex
from hermes_orm.models import StateMeta
from hermes_orm.repositories.base import Repository
from hermes_orm.repositories.paging import UNLIMITED
from hermes_orm.repositories.search.indexing import until_now, values_of
from hermes_orm.repositories.search.request import Order, SearchRequest
from hermes_orm.repositories.search.routes import SCAN_FOR_INDEX, Route, fallback_route
from hermes_orm.repositories.search.statements import PLAIN_COLUMNS, Texts, pages
from hermes_orm.repositories.search.surroundings import CONTEXT_COLUMNS, REPEATED
from hermes_orm.rows import ContextEntry, SearchHit
from hermes_orm.search.checks import holds_substrings, holds_words
from hermes_orm.search.text import context_text, search_columns, whole_text

COMPARED_AT_ONCE: Final = 500
"""Archived hits; each of them is looked for in the chains of all."""

_KEYS: Final = tuple(PLAIN_COLUMNS)
_ID: Final = _KEYS.index("id")
_ROLE: Final = _KEYS.index("role")
_TOOL_NAME: Final = _KEYS.index("tool_name")
_ACTIVE: Final = _KEYS.index("active")
_TIMESTAMP: Final = _KEYS.index("timestamp")
_CONTENT: Final = len(_KEYS)

logger = logging.getLogger("hermes_orm.search")


class SearchRepository(Repository):
    """Hits of a search: their rows, snippets and contexts."""

    def hits(self, request: SearchRequest, route: Route) -> tuple[list[SearchHit], str]:
        """Return the page that a route finds, or its fallback, and the name of the one that did."""
        route, rows = self._found(request, route)
        return self._shown(route, rows, request.keys), route.name

    def _found(self, request: SearchRequest, route: Route) -> tuple[Route, Sequence[Row]]:
        route, rows = self._page(route, request)
        search = self.tx.dialect.search
        fallback = None if self._are_hits(route, rows) else fallback_route(request, search)
        if fallback is None or (request.offset and self._has_hits(route, request)):
            return route, rows
        return self._page(fallback, request)

    def _has_hits(self, route: Route, request: SearchRequest) -> bool:
        """Whether there is a hit on any page."""
        return self._are_hits(*self._page(route.counted(), request.first_hit()))

    def _are_hits(self, route: Route, rows: Sequence[Row]) -> bool:
        """Whether the rows say that the query finds something.

        What the scan of a gap has found inside of words only would keep a word search from its
        fallback.
        """
        if route.gap is None or route.shape.index is not SearchIndex.WORDS:
            return bool(rows)
        return any(
            row[_ID] not in range(route.gap.after_id + 1, route.gap.last_id + 1)
            or holds_words(route.tree, _searched(row, route.shape.texts))
            for row in rows
        )

    def _page(self, route: Route, request: SearchRequest) -> tuple[Route, Sequence[Row]]:
        """The page of one route, found by scan when its index is out of order."""
        route = self._possible(route)
        try:
            return route, self._distinct_rows(route, request)
        except Exception as error:
            if route.shape.index is None or not self.tx.dialect.search.is_damage(error):
                raise
            _warn_of_damage(str(error))
            self.tx.dialect.indexing.damaged = route.shape.index
        scan = route.scanned(SCAN_FOR_INDEX)
        return scan, self._distinct_rows(scan, request)

    def _possible(self, route: Route) -> Route:
        """The route as the state of its index allows it."""
        search, indexing, index = (
            self.tx.dialect.search,
            self.tx.dialect.indexing,
            route.shape.index,
        )
        if indexing.is_settled or (index is None and search.undecided() is None):
            return route
        stale_keys = search.stale_keys(index) if index else ()
        state = values_of(self.tx.all(_state((*stale_keys, *REBUILD))))
        if not state:
            indexing.is_settled = indexing.stays_settled
        if not state.keys().isdisjoint(stale_keys):
            alternative = route.alternative
            return self._possible(alternative) if alternative else route.scanned(SCAN_FOR_INDEX)
        gap = until_now(self.tx, Gap.of(state, REBUILD))
        return route if gap is None else route.beside(gap)

    def _distinct_rows(self, route: Route, request: SearchRequest) -> Sequence[Row]:
        """The rows of a page, in which archived rows that a live row repeats do not count."""
        if "visible" not in request.filters:
            return self._rows(route, request.offset, request.limit)
        start = 0
        if request.offset:
            skipped, start = self._take(route.counted(), 0, request.offset)
            if len(skipped) < request.offset:
                return []
        return self._take(route, start, request.limit)[0]

    def _take(self, route: Route, start: int, wanted: int) -> tuple[list[Row], int]:
        """Read from row `start` on until enough rows count; return them and where to read on."""
        taken: list[Row] = []
        size = wanted
        while len(taken) < wanted:
            rows = self._rows(route, start, size)
            repeated = self._repeated(rows)
            for row in rows:
                if len(taken) == wanted:
                    break
                start += 1
                if row[_ID] not in repeated:
                    taken.append(row)
            if len(rows) < size:
                break
            size = 4 * (wanted - len(taken))  # where there are some, there are more
        return taken, start

    def _repeated(self, rows: Sequence[Row]) -> set[int]:
        """The ids of archived rows that a live row repeats."""
        archived = [row[_ID] for row in rows if row[_ACTIVE] != 1]
        repeated: set[int] = set()
        for first in range(0, len(archived), COMPARED_AT_ONCE):
            ids = id_list(archived[first : first + COMPARED_AT_ONCE])
            repeated.update(row_id for (row_id,) in self.tx.all(REPEATED, {"ids": ids}))
        return repeated

    def _rows(self, route: Route, offset: int, limit: int) -> Sequence[Row]:
        if route.gap is None:
            return self._selected(route, offset, limit)
        end = min(offset + limit, UNLIMITED)
        if route.shape.index is None:
            return self._checked(route, end)[offset:end]
        found = {row[_ID]: row for row in self._selected(route, 0, end)}
        for row in self._checked(route.through_gap(), end):
            found.setdefault(row[_ID], row)
        rows = list(found.values())
        order = route.shape.order
        if order is not Order.RELEVANCE or route.shape.index is not SearchIndex.WORDS:
            key = itemgetter(_TIMESTAMP, _ID)
            rows.sort(key=key, reverse=order is not Order.OLDEST)
        return rows[offset:end]

    def _checked(self, route: Route, wanted: int) -> list[Row]:
        """The first rows of a scan; texts that SQL could not read are read here."""
        checked: list[Row] = []
        start, size = 0, wanted
        while len(checked) < wanted:
            rows = self._selected(route, start, size)
            checked += (row for row in rows if self._holds(route, row))
            start += len(rows)
            if len(rows) < size:
                break
        return checked[:wanted]

    def _holds(self, route: Route, row: Row) -> bool:
        if not route.shape.has_gap:
            return True
        stored = row[_CONTENT]
        is_plain = decode_content(stored) is stored
        return is_plain or holds_substrings(route.tree, _searched(row, route.shape.texts))

    def _selected(self, route: Route, offset: int, limit: int) -> Sequence[Row]:
        params = {**route.params, "limit": limit, "offset": offset}
        rows: Sequence[Row] = ()
        for statement in pages(route.shape):
            if rows := self.tx.all(statement, params):
                break
        return rows

    def _shown(self, route: Route, rows: Sequence[Row], keys: Sequence[str]) -> list[SearchHit]:
        """The hits of rows, with their values in the order of the keys."""
        texts, has_context = route.shape.texts, route.shape.has_context
        snippet = route.snippets(route.tree) if "snippet" in keys else None
        hits = []
        for row in rows:
            values = dict(zip(_KEYS, row, strict=False))
            if has_context:
                values["context"] = _context(row[-len(CONTEXT_COLUMNS) :])
            if snippet is not None:
                values["snippet"] = snippet(_searched(row, texts))
            hits.append({key: values[key] for key in keys})
        return cast(list[SearchHit], hits)


def _context(told: Sequence[Any]) -> list[ContextEntry]:
    """The entries of roles and contents, told in turn; there is no message where a role is None."""
    return [
        {"role": role, "content": context_text(decode_content(stored))}
        for role, stored in zip(told[::2], told[1::2], strict=True)
        if role is not None
    ]


def _searched(row: Row, texts: Texts) -> Sequence[str]:
    """The texts of a row in which its search has looked."""
    content, name = decode_content(row[_CONTENT]), row[_TOOL_NAME]
    if texts.are_whole:
        return whole_text(content), name or ""
    calls = row[_CONTENT + 1] if texts.has_calls else None
    return search_columns(content, name, calls, row[_ROLE])


@cache
def _state(keys: tuple[str, ...]) -> Prepared:
    are_asked = or_(*(StateMeta.key == key for key in keys))
    return Prepared(select(StateMeta.key, StateMeta.value).where(are_asked))


@cache
def _warn_of_damage(reason: str) -> None:
    """Warn once, not at every search."""
    logger.warning("messages are searched by scan, since an index cannot be used: %s", reason)
