"""How a report of token usage is counted: the statements that both databases have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from functools import lru_cache
from typing import Any, Final, Literal

from sqlalchemy import (
    ColumnElement,
    FromClause,
    Select,
    and_,
    bindparam,
    case,
    cast,
    func,
    literal_column,
    or_,
    select,
)
from sqlalchemy.dialects.postgresql import Insert, insert

from hermes_orm.dialects.expressions import insert_into
from hermes_orm.dialects.prepared import Prepared
from hermes_orm.models import Session, SessionModelUsage
from hermes_orm.models.base import TEXT

Kind = Literal["delta", "absolute", "auxiliary"]
"""Added to the totals of the session, put in their place, or counted beside them."""

COUNTERS: Final = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "api_call_count",
)
COSTS: Final = ("estimated_cost_usd", "actual_cost_usd")
DESCRIPTIONS: Final = ("cost_status", "cost_source", "pricing_version")
ROUTE: Final = ("model", "billing_provider", "billing_base_url", "billing_mode")
USED: Final = tuple(f"used_{name}" for name in ROUTE)
"""Parameters: the route of a usage row; None takes the session's."""

NOTHING: Final[Mapping[str, Any]] = {
    **dict.fromkeys((*COSTS, *DESCRIPTIONS, *ROUTE)),
    **dict.fromkeys(COUNTERS, 0),
}
"""A report that tells nothing."""

GREATEST: Final = 2**63 - 1
GREATEST_COST: Final = 1e12
"""US dollars; more is no bill."""
UNKNOWN: Final = "unknown"

_ZERO: ColumnElement[Any] = literal_column("0")


def _given(name: str) -> ColumnElement[Any]:
    return bindparam(name, type_=getattr(Session, name).type)


def _raised(total: Any, number: ColumnElement[Any]) -> ColumnElement[Any]:
    """A counter after `number` more; it stops at 64 bits, and what is no number counts as 0."""
    stored = func.coalesce(cast(total, total.type), _ZERO)
    limit = literal_column(str(GREATEST), total.type)
    return case((stored > limit - number, limit), else_=stored + number)


def _raised_cost(total: Any, cost: ColumnElement[Any]) -> ColumnElement[Any]:
    """A sum of costs after `cost` more; one that was spoilt (NaN, infinity) begins anew."""
    limit = literal_column("1e300", total.type)
    return case((total.between(-limit, limit), total), else_=literal_column("0.0")) + cost


def counted(kind: Kind, told: Set[str] = NOTHING.keys()) -> Insert:
    """Return the statement that creates the session of a report, or adds the report to its row.

    `told`: what may differ from `NOTHING`.
    """
    values: dict[str, Any] = {
        "id": bindparam("session_id"),
        "source": UNKNOWN,
        "created_source": UNKNOWN,
        "started_at": bindparam("now"),
    }
    if kind == "auxiliary":
        statement = insert_into(Session, values)
        # Written, not only looked at: nobody can delete the session before the report is stored.
        return statement.on_conflict_do_update(
            index_elements=["id"], set_={"source": Session.source}
        )
    if told >= set(ROUTE[:2]):
        told = told | set(ROUTE)
    told = told | set(COSTS)
    for name in _in_order((*COUNTERS, *COSTS, *DESCRIPTIONS, *ROUTE), told):
        is_zeroed = name in COUNTERS or name == "estimated_cost_usd"
        values[name] = func.coalesce(_given(name), _ZERO) if is_zeroed else _given(name)
    statement = insert_into(Session, values)
    return statement.on_conflict_do_update(
        index_elements=["id"], set_=_changes(kind, told, statement.excluded)
    )


def _changes(kind: Kind, told: Set[str], given: Any) -> dict[str, Any]:
    changes = _replaced() if kind == "absolute" else _added(given, told)
    for name in _in_order(DESCRIPTIONS, told):
        changes[name] = func.coalesce(given[name], getattr(Session, name))
    for name in _in_order(ROUTE, told):
        changes[name] = func.coalesce(getattr(Session, name), given[name])
    if told >= set(ROUTE):
        is_first = _is_first(given)
        changes |= {name: case((is_first, given[name]), else_=changes[name]) for name in ROUTE}
    return changes


def _in_order(names: Sequence[str], told: Set[str]) -> list[str]:
    return [name for name in names if name in told]


def _added(given: Any, told: Set[str]) -> dict[str, Any]:
    actual = Session.actual_cost_usd
    return {
        **{
            name: _raised(getattr(Session, name), given[name]) for name in _in_order(COUNTERS, told)
        },
        "estimated_cost_usd": _raised_cost(Session.estimated_cost_usd, given.estimated_cost_usd),
        "actual_cost_usd": func.coalesce(_raised_cost(actual, given.actual_cost_usd), actual),
    }


def _replaced() -> dict[str, Any]:
    """A value that was refused leaves what is stored."""
    return {
        name: func.coalesce(_given(name), getattr(Session, name)) for name in (*COUNTERS, *COSTS)
    }


def _is_first(given: Any) -> ColumnElement[bool]:
    """Whether a report is the first that was accounted: the route that answered counts then.

    Later, and for a route that is not known in full, only what is missing is filled.
    """
    return and_(
        bindparam("has_route", type_=Session.archived.type) == literal_column("1"),
        func.coalesce(Session.api_call_count, _ZERO) == _ZERO,
        or_(*(getattr(Session, name).is_distinct_from(given[name]) for name in ROUTE[:2])),
    )


def spent(session: FromClause, told: Set[str] = NOTHING.keys()) -> Insert:
    """Return the statement that adds a report to its usage row; `session` holds its session."""
    defaults = (UNKNOWN, "", "", "")
    route = [
        func.coalesce(
            bindparam(used, type_=TEXT),
            func.nullif(session.c[name], literal_column("''")),
            literal_column(f"'{default}'"),
        )
        for used, name, default in zip(USED, ROUTE, defaults, strict=True)
    ]
    row, now = SessionModelUsage, bindparam("now", type_=Session.started_at.type)
    counters, costs, described = (
        _in_order(names, told) for names in (COUNTERS, COSTS, DESCRIPTIONS[:2])
    )
    report: Select[Any] = select(
        session.c.id,
        *route,
        bindparam("task", type_=TEXT),
        *(func.coalesce(_given(name), _ZERO) for name in (*counters, *costs)),
        *(_given(name) for name in described),
        now,
        now,
    ).where(session.c.id == bindparam("session_id", type_=TEXT))
    names = ["session_id", *ROUTE, "task", *counters, *costs, *described, "first_seen", "last_seen"]
    statement = insert(row).from_select(names, report)
    given = statement.excluded
    changed: dict[str, Any] = {
        **{name: _raised(getattr(row, name), given[name]) for name in counters},
        **{name: _raised_cost(getattr(row, name), given[name]) for name in costs},
        **{name: func.coalesce(given[name], getattr(row, name)) for name in described},
        "last_seen": given.last_seen,
    }
    key = [column.name for column in row.__table__.primary_key]
    return statement.on_conflict_do_update(index_elements=key, set_=changed)


@lru_cache
def count(kind: Kind) -> Prepared:
    """Return `counted` as it is for a report without a usage row."""
    return Prepared(counted(kind))
