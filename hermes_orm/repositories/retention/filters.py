"""Which sessions are pruned or archived: filters as callers give them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypedDict

from hermes_orm import clock
from hermes_orm.arguments import finite_number, natural_number, truth
from hermes_orm.repositories.sessions.filters import FilterBuilder, SessionFilter, empty_sessions
from hermes_orm.session_text import fold_ascii

DAY: Final = 86_400
GHOST_SOURCE: Final = "tui"
_LARGEST: Final = 2**63 - 1


class PruneFilters(TypedDict, total=False):
    """Filters on sessions, all of which must match; None, or an empty text, is no filter.

    Times are Unix times, `before` exclusive; `last_active_...` is about the latest message, or the
    start. `..._like` is a part of the text, case of A to Z ignored; nothing in it is a wildcard.
    `cwd_prefix` is a directory, with those below it. `min_...` and `max_...` are inclusive. Pinned
    sessions match with `include_pinned` only.
    """

    last_active_before: float | None
    last_active_after: float | None
    started_before: float | None
    started_after: float | None
    title_like: str | None
    end_reason: str | None
    cwd_prefix: str | None
    min_messages: int | None
    max_messages: int | None
    archived: bool | None
    model_like: str | None
    provider: str | None
    user_id: str | None
    chat_id: str | None
    chat_type: str | None
    branch_like: str | None
    min_tokens: int | None
    max_tokens: int | None
    min_cost: float | None
    max_cost: float | None
    min_tool_calls: int | None
    max_tool_calls: int | None
    include_pinned: bool | None


def prune_filter(
    state: str, older_than_days: float | None, source: str | None, filters: PruneFilters
) -> SessionFilter:
    """Return the filter for arguments of a public operation on `ended` or `open` sessions.

    The age in days sets `last_active_before`, unless that or `started_before` is given. Raises
    TypeError for an unknown filter or a value of the wrong type; ValueError for a number that is
    not finite, and for a negative age, count or cost.
    """
    builder = FilterBuilder()
    builder.add(state)
    given: dict[str, Any] = {"source": source, **filters}
    if given.get("include_pinned") is None:
        given["include_pinned"] = False
    for name, value in given.items():
        if name not in _ADDING:
            raise TypeError(f"{name!r} is no filter; there are {', '.join(sorted(_ADDING))}")
        if value is not None:
            _ADDING[name](builder, name, value)
    if older_than_days is not None:
        cutoff = clock.now() - natural_number(older_than_days, "older_than_days") * DAY
        if builder.names.isdisjoint({"last_active_before", "started_before"}):
            builder.add("last_active_before", last_active_before=cutoff)
    return builder.filter()


def empty_filter(*, include_pinned: bool) -> SessionFilter:
    """Return the filter for the sessions that `count_empty_sessions` counts."""
    names = empty_sessions(include_pinned=truth(include_pinned, "include_pinned"))
    return SessionFilter(names, {})


def ghost_filter(*, include_pinned: bool) -> SessionFilter:
    """Return the filter for what a terminal leaves that was opened and closed a day ago."""
    builder = FilterBuilder()
    builder.text("source", GHOST_SOURCE)
    builder.add("started_before", started_before=clock.now() - DAY)
    builder.names |= {"untitled", "ended", "messageless"}
    _add_pinned(builder, "include_pinned", include_pinned)
    return builder.filter()


def unused_filter(session_id: str) -> SessionFilter:
    """Return the filter for one session, unless it has a title, a message or a child."""
    names = frozenset({"this", "untitled", "messageless", "childless"})
    return SessionFilter(names, {"session_id": session_id})


def stale_filter(idle_days: float, *, exclude_pinned: bool) -> SessionFilter:
    """Return the filter for unarchived conversations without a sign of life for some days."""
    builder = FilterBuilder()
    builder.names |= {"unarchived", "uncompressed"}
    builder.add("idle_since", idle_since=clock.now() - idle_days * DAY)
    _add_pinned(builder, "exclude_pinned", not truth(exclude_pinned, "exclude_pinned"))
    return builder.filter()


def _text(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name} must be text, not {type(value).__name__}")
    return value


def _add_moment(builder: FilterBuilder, name: str, value: object) -> None:
    builder.add(name, **{name: finite_number(value, name)})


def _add_cost(builder: FilterBuilder, name: str, value: object) -> None:
    builder.add(name, **{name: natural_number(value, name)})


def _add_count(builder: FilterBuilder, name: str, value: Any) -> None:
    if not natural_number(value, name).is_integer():
        raise ValueError(f"{name} must be a whole number; {value} was given")
    builder.add(name, **{name: min(int(value), _LARGEST)})


def _add_text(builder: FilterBuilder, name: str, value: object) -> None:
    builder.text(name, _text(value, name))


def _add_folded(builder: FilterBuilder, name: str, value: object) -> None:
    builder.text(name, fold_ascii(_text(value, name)))


def _add_part(builder: FilterBuilder, name: str, value: object) -> None:
    builder.needle(name, _text(value, name))


def _add_directory(builder: FilterBuilder, name: str, value: object) -> None:
    builder.path("cwd", _text(value, name))


def _add_archived(builder: FilterBuilder, name: str, value: object) -> None:
    builder.add("archived" if truth(value, name) else "unarchived")


def _add_pinned(builder: FilterBuilder, name: str, value: object) -> None:
    if not truth(value, name):
        builder.add("unpinned")


_ADDING: Final[dict[str, Callable[[FilterBuilder, str, Any], None]]] = {
    **dict.fromkeys(("last_active_before", "last_active_after"), _add_moment),
    **dict.fromkeys(("started_before", "started_after"), _add_moment),
    **dict.fromkeys(("source", "end_reason", "user_id", "chat_id", "chat_type"), _add_text),
    **dict.fromkeys(("title_like", "model_like", "branch_like"), _add_part),
    **dict.fromkeys(("min_messages", "max_messages", "min_tokens", "max_tokens"), _add_count),
    **dict.fromkeys(("min_tool_calls", "max_tool_calls"), _add_count),
    **dict.fromkeys(("min_cost", "max_cost"), _add_cost),
    "provider": _add_folded,
    "cwd_prefix": _add_directory,
    "archived": _add_archived,
    "include_pinned": _add_pinned,
}
"""How the value of each filter becomes a condition."""
