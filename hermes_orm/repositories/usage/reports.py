"""Reports of token usage as they are given: checked and encoded, merged while they are queued."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from numbers import Integral, Real
from typing import Any, Final, Self, TypedDict

from hermes_orm import clock
from hermes_orm.dialects.accounting import (
    COSTS,
    COUNTERS,
    DESCRIPTIONS,
    GREATEST,
    GREATEST_COST,
    NOTHING,
    ROUTE,
    UNKNOWN,
    USED,
    Kind,
)
from hermes_orm.session_text import check_entry, indexed_text, stored_key

logger = logging.getLogger(__name__)


class TokenCounts(TypedDict, total=False):
    """What a report may tell; None is the same as nothing."""

    input_tokens: int | None
    output_tokens: int | None
    model: str | None
    cache_read_tokens: int | None
    cache_write_tokens: int | None
    reasoning_tokens: int | None
    estimated_cost_usd: float | None
    actual_cost_usd: float | None
    cost_status: str | None
    cost_source: str | None
    pricing_version: str | None
    billing_provider: str | None
    billing_base_url: str | None
    billing_mode: str | None
    api_call_count: int | None
    absolute: bool


_TEXTS: Final = (*DESCRIPTIONS, *ROUTE)
_SPENDING: Final = (*COUNTERS, "estimated_cost_usd")
_ENTRY: Final = ("session_id", *ROUTE, "task")


@dataclass(frozen=True, slots=True)
class Report:
    """The encoded arguments of one report, or of several that were merged."""

    kind: Kind
    params: Mapping[str, Any]

    @classmethod
    def of(cls, session_id: str, given: Mapping[str, Any]) -> Self:
        """Encode a report of the main loop.

        Raises TypeError for an unknown keyword or what is no number, ValueError for a count beyond
        64 bits and for an id that cannot be stored. Counts and costs that no model can have had are
        left out, with a warning.
        """
        params = _encoded(session_id, given)
        for used, name in zip(USED, ROUTE, strict=True):
            params[used] = params[name] or None
        if not any(params[name] for name in (*COUNTERS, *COSTS)):  # nothing was used on that route
            params |= dict.fromkeys(ROUTE[1:])
        params["has_route"] = int(bool(params["model"] and params["billing_provider"]))
        params["task"] = ""
        check_entry({name: params[name] for name in _ENTRY})
        return cls("absolute" if given.get("absolute") else "delta", params)

    @classmethod
    def auxiliary(cls, session_id: str, task: str, given: Mapping[str, Any]) -> Self:
        """Encode a report of a task beside the main loop; raises as `of`."""
        params = _encoded(session_id, given)
        params |= {used: params[name] or "" for used, name in zip(USED, ROUTE, strict=True)}
        params["used_model"] = params["model"] or UNKNOWN
        params["task"] = indexed_text(task, "task")
        check_entry({name: params[name] for name in _ENTRY})
        return cls("auxiliary", params)

    @property
    def session_id(self) -> str:
        """The session that it is about."""
        session_id: str = self.params["session_id"]
        return session_id

    @property
    def has_usage_row(self) -> bool:
        """Whether it belongs into a row of usage: it tells what one model took."""
        return self.kind == "auxiliary" or (
            self.kind == "delta" and any(self.params[name] for name in _SPENDING)
        )

    def merged(self, later: Self) -> Self | None:
        """Return both as one report; None when they differ in more than their numbers."""
        mine, other = self.params, later.params
        same = ("session_id", *_TEXTS, *USED, "has_route")
        if (
            "absolute" in (self.kind, later.kind)
            or self.has_usage_row != later.has_usage_row
            or any(mine[name] != other[name] for name in same)
        ):
            return None
        sums: dict[str, Any] = {name: min(mine[name] + other[name], GREATEST) for name in COUNTERS}
        for name in COSTS:
            costs = [cost for cost in (mine[name], other[name]) if cost is not None]
            sums[name] = sum(costs) if costs else None
        return type(self)(self.kind, {**other, **sums})


def _encoded(session_id: str, given: Mapping[str, Any]) -> dict[str, Any]:
    params = {**NOTHING, "session_id": stored_key(session_id), "now": clock.now()}
    is_absolute = given.get("absolute")
    if is_absolute:
        params["estimated_cost_usd"] = 0.0
    refused = []
    for name, value in given.items():
        if value is None or name == "absolute":
            continue
        if name not in _ENCODERS:
            raise TypeError(f"a token report has no {name!r}; it has {', '.join(_ENCODERS)}")
        encoded = _ENCODERS[name](name, value)
        if encoded is not None:
            params[name] = encoded
        else:
            refused.append(name)
    if refused:
        logger.warning("usage of session %r: no %s can be so", session_id, ", ".join(refused))
        if is_absolute:
            params |= dict.fromkeys(refused)
    return params


def _count(name: str, value: Any) -> int | None:
    """Return a count; None for one that cannot be."""
    if type(value) is int and 0 <= value <= GREATEST:
        return value
    number = _number(name, value)
    if not 0 <= number < math.inf:
        return None
    if number > GREATEST:
        raise ValueError(f"{name} does not fit into 64 bits; report what was really used")
    return int(number)


def _cost(name: str, value: Any) -> float | None:
    """Return a cost; None for one that cannot be."""
    cost = _number(name, value)
    return float(cost) if 0 <= cost <= GREATEST_COST else None


def _number(name: str, value: Any) -> int | float:
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real | Decimal):
        return float(value)
    raise TypeError(f"{name} must be a number or None, not {type(value).__name__}")


def _text(name: str, value: Any) -> str | None:
    return indexed_text(value, name)


_ENCODERS: Final[Mapping[str, Callable[[str, Any], Any]]] = {
    **dict.fromkeys(COUNTERS, _count),
    **dict.fromkeys(COSTS, _cost),
    **dict.fromkeys(_TEXTS, _text),
}
