"""What a caller asks of `search_messages`, checked before anything is read."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from hermes_orm.dialects.expressions import text_list
from hermes_orm.repositories.paging import row_limit, row_offset
from hermes_orm.rows import SearchHit
from hermes_orm.search.query import SearchQuery, parse
from hermes_orm.session_text import lookup_key

HIT_KEYS: Final = tuple(SearchHit.__annotations__)
TOOL: Final = "tool"
UNCOVERED_SOURCES: Final = ("cron", "subagent")
"""Sources whose sessions substring search leaves out, unless the caller names one of them."""


class Order(StrEnum):
    """In which order hits come; those without a relevance are as if `newest` were asked for."""

    RELEVANCE = "relevance"
    NEWEST = "newest"
    OLDEST = "oldest"


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """A search: the query, the conditions on hits, and the page."""

    query: SearchQuery
    filters: frozenset[str]
    """Names of the conditions; their values are `params`."""
    params: Mapping[str, Any]
    order: Order
    limit: int
    offset: int
    keys: tuple[str, ...]
    """What a hit shows."""
    covers_all: bool
    """Whether substring search leaves nothing out, and reads beyond what an index holds."""
    has_tools: bool
    """Whether tool messages are asked for."""

    def first_hit(self) -> SearchRequest:
        """Return the request for the first hit only."""
        return replace(self, limit=1, offset=0)

    @classmethod
    def of(
        cls,
        query: str | None,
        *,
        source_filter: Iterable[str] | None,
        exclude_sources: Iterable[str] | None,
        role_filter: Iterable[str] | None,
        limit: int | None,
        offset: int,
        sort: object,
        include_inactive: bool,
        fields: Collection[str] | None,
    ) -> SearchRequest:
        """Return the request for the arguments of `search_messages`."""
        keys = _shown_keys(fields)
        sources = _texts("source_filter", source_filter)
        excluded = _texts("exclude_sources", exclude_sources)
        roles = _texts("role_filter", role_filter)
        _check_integer("limit", limit, int | None)
        _check_integer("offset", offset, int)
        has_tools = TOOL in (roles or ())
        wanted = {"sources": sources, "exclude_sources": excluded, "roles": roles}
        params = {
            name: text_list(value for value in values if lookup_key(value) is not None)
            for name, values in wanted.items()
            if values
        }
        return cls(
            query=parse(query),
            filters=frozenset(params if include_inactive else (*params, "visible")),
            params=params,
            order=_order(sort),
            limit=0 if sources == [] else row_limit(limit),
            offset=row_offset(offset),
            keys=keys,
            covers_all=has_tools or not set(UNCOVERED_SOURCES).isdisjoint(sources or ()),
            has_tools=has_tools,
        )


def _shown_keys(fields: Collection[str] | None) -> tuple[str, ...]:
    if fields is None:
        return HIT_KEYS
    if isinstance(fields, str):
        raise TypeError("fields must be a collection of names, such as a list, not one string")
    wanted = set(fields)
    if unknown := sorted(map(str, wanted.difference(HIT_KEYS))):
        raise ValueError(
            f"fields has unknown names: {', '.join(unknown)}; known are {', '.join(HIT_KEYS)}"
        )
    return tuple(key for key in HIT_KEYS if key in wanted)


def _texts(name: str, values: Iterable[str] | None) -> list[str] | None:
    if values is None:
        return None
    if isinstance(values, str | bytes):
        raise TypeError(f"{name} must be a collection of strings, such as a list, not one string")
    texts = list(values)
    for text in texts:
        if not isinstance(text, str):
            raise TypeError(f"{name} must hold strings only, not {type(text).__name__}")
    return texts


def _check_integer(name: str, value: object, kind: Any) -> None:
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be an integer, not {type(value).__name__}")


def _order(sort: object) -> Order:
    word = sort.strip().lower() if isinstance(sort, str) else ""
    return Order(word) if word in (Order.NEWEST, Order.OLDEST) else Order.RELEVANCE
