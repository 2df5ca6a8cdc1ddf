"""The ways to the hits of a query: by words, else by substrings; by an index, else by scan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from hermes_orm.dialects.base import Search
from hermes_orm.dialects.indexing import Gap
from hermes_orm.dialects.search import SearchIndex
from hermes_orm.dialects.text_condition import TextCondition
from hermes_orm.repositories.search.request import SearchRequest
from hermes_orm.repositories.search.statements import Shape, Shown, Texts
from hermes_orm.search.query import Node
from hermes_orm.search.snippets import Snippet, substring_snippets, word_snippets

SCAN: Final = "like_scan"
SCAN_FOR_INDEX: Final = "like_scan_fts_stale"
"""Names in the log of searches without an index; the second has one that is out of order."""


@dataclass(frozen=True, slots=True)
class Route:
    """One way to hits: which statements, what they bind, and how a hit shows why it was found."""

    name: str
    tree: Node
    shape: Shape
    params: Mapping[str, Any]
    snippets: Callable[[Node], Snippet]
    alternative: Route | None = None
    """The route to take while the index cannot be asked."""
    gap: Gap | None = None
    """What the index does not hold yet."""

    def counted(self) -> Route:
        """Return the route to rows that are only counted."""
        if self.gap is not None:
            return self
        return replace(self, shape=replace(self.shape, shown=Shown.STATE, has_context=False))

    def beside(self, gap: Gap) -> Route:
        """Return the route while a rebuild has still to index the messages of a gap."""
        has_gap = self.shape.search.undecided() is not None
        return replace(self, gap=gap, shape=replace(self.shape, has_gap=has_gap, shown=Shown.TEXTS))

    def through_gap(self) -> Route:
        """Return the route to the hits that the index does not hold yet."""
        assert self.gap is not None
        scan = self.scanned(self.name)
        return replace(
            scan,
            shape=replace(scan.shape, filters=scan.shape.filters | {"gap"}),
            params={**scan.params, "gap_after": self.gap.after_id, "gap_last": self.gap.last_id},
        )

    def scanned(self, name: str) -> Route:
        """Return the route that finds hits without the index."""
        condition = TextCondition.of(self.tree)
        return replace(
            self,
            name=name,
            shape=replace(self.shape, index=None, condition=condition),
            params={**self.params, **condition.params},
            snippets=substring_snippets,
        )


def first_route(request: SearchRequest, search: Search) -> Route | None:
    """Return the route to try first: CJK text is found as substrings; None for an empty query."""
    query = request.query
    if query.is_cjk:
        return _by_substrings(request, search, query.substrings())
    tree = query.words()
    return _route(request, search, tree, SearchIndex.WORDS, request.filters) if tree else None


def fallback_route(request: SearchRequest, search: Search) -> Route | None:
    """Return the route to substrings, for a query whose words are in no message."""
    query = request.query
    if query.is_cjk or request.has_tools:
        return None
    return _by_substrings(request, search, query.fallback())


def _by_substrings(request: SearchRequest, search: Search, tree: Node | None) -> Route | None:
    """Substring search covers neither tool messages nor sessions of cron jobs and delegates.

    Where they are asked for, it is a scan of whole texts.
    """
    if tree is None:
        return None
    filters = request.filters if request.covers_all else request.filters | {"covered"}
    route = _route(request, search, tree, SearchIndex.SUBSTRINGS, filters)
    if request.covers_all or search.parameters(SearchIndex.PAIRS, tree) is None:
        return route
    by_pairs = _route(request, search, tree, SearchIndex.PAIRS, filters)
    return replace(by_pairs, alternative=route)


def _route(
    request: SearchRequest,
    search: Search,
    tree: Node,
    index: SearchIndex,
    filters: frozenset[str],
) -> Route:
    is_by_words = index is SearchIndex.WORDS
    are_whole = request.covers_all and not is_by_words
    match = None if are_whole else search.parameters(index, tree)
    condition = None if index in search.exact else TextCondition.of(tree)
    route = Route(
        search.route(index),
        tree,
        Shape(
            search=search,
            index=index,
            texts=Texts(has_calls=is_by_words, are_whole=are_whole),
            condition=condition,
            filters=filters,
            order=request.order,
            shown=Shown.TEXTS if "snippet" in request.keys else Shown.VALUES,
            has_context="context" in request.keys,
        ),
        {**request.params, **(match or {}), **(condition.params if condition else {})},
        word_snippets if is_by_words else substring_snippets,
    )
    return route.scanned(SCAN) if match is None else route
