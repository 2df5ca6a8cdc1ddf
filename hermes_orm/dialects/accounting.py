"""How a report of token usage is counted: the statements that both databases have in common."""

from __future__ import annotations

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


@lru_cache
def counted(kind: Kind) -> Insert:
    """Return the statement that creates the session of a report, or adds the report to its row."""
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
    zeroed = (*COUNTERS, "estimated_cost_usd")
    values |= {name: func.coalesce(_given(name), _ZERO) for name in zeroed}
    values |= {name: _given(name) for name in ("actual_cost_usd", *DESCRIPTIONS, *ROUTE)}
    statement = insert_into(Session, values)
    given = statement.excluded
    totals = _replaced() if kind == "absolute" else _added(given)
    described: dict[str, Any] = {
        name: func.coalesce(given[name], getattr(Session, name)) for name in DESCRIPTIONS
    }
    return statement.on_conflict_do_update(
        index_elements=["id"], set_=totals | described | _route(given)
    )


def _added(given: Any) -> dict[str, Any]:
    actual = Session.actual_cost_usd
    return {
        **{name: _raised(getattr(Session, name), given[name]) for name in COUNTERS},
        "estimated_cost_usd": _raised_cost(Session.estimated_cost_usd, given.estimated_cost_usd),
        "actual_cost_usd": func.coalesce(_raised_cost(actual, given.actual_cost_usd), actual),
    }


def _replaced() -> dict[str, Any]:
    """A value that was refused leaves what is stored."""
    return {
        name: func.coalesce(_given(name), getattr(Session, name)) for name in (*COUNTERS, *COSTS)
    }


def _route(given: Any) -> dict[str, Any]:
    """What a session runs on: the route that answered first, whatever was asked for.

    Until then, and for a route that is not known in full, only what is missing is filled.
    """
    names = ("model", "billing_provider")
    is_first = and_(
        bindparam("has_route", type_=Session.archived.type) == literal_column("1"),
        func.coalesce(Session.api_call_count, _ZERO) == _ZERO,
        or_(*(getattr(Session, name).is_distinct_from(given[name]) for name in names)),
    )
    return {
        name: case(
            (is_first, given[name]), else_=func.coalesce(getattr(Session, name), given[name])
        )
        for name in ROUTE
    }


def spent(session: FromClause) -> Insert:
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
    numbers = [func.coalesce(_given(name), _ZERO) for name in (*COUNTERS, *COSTS)]
    now = bindparam("now", type_=Session.started_at.type)
    names = ["session_id", *ROUTE, "task", *COUNTERS, *COSTS, *DESCRIPTIONS[:2]]
    report: Select[Any] = select(
        session.c.id,
        *route,
        bindparam("task", type_=TEXT),
        *numbers,
        *(_given(name) for name in DESCRIPTIONS[:2]),
        now,
        now,
    ).where(session.c.id == bindparam("session_id", type_=TEXT))
    row = SessionModelUsage
    statement = insert(row).from_select([*names, "first_seen", "last_seen"], report)
    given = statement.excluded
    changed: dict[str, Any] = {
        **{name: _raised(getattr(row, name), given[name]) for name in COUNTERS},
        **{name: _raised_cost(getattr(row, name), given[name]) for name in COSTS},
        **{name: func.coalesce(given[name], getattr(row, name)) for name in DESCRIPTIONS[:2]},
        "last_seen": given.last_seen,
    }
    key = [column.name for column in row.__table__.primary_key]
    return statement.on_conflict_do_update(index_elements=key, set_=changed)


@lru_cache
def count(kind: Kind) -> Prepared:
    """Return `counted` as it is for a report without a usage row."""
    return Prepared(counted(kind))
