"""Usage over all sessions, summed up in groups."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, Literal, TypeAlias, get_args
from typing import cast as typed

from sqlalchemy import (
    ColumnElement,
    Double,
    Select,
    bindparam,
    case,
    cast,
    func,
    literal_column,
    select,
    union_all,
)
from sqlalchemy.orm import aliased

from hermes_orm.arguments import finite_number
from hermes_orm.dialects import Prepared
from hermes_orm.dialects.accounting import COSTS, COUNTERS, UNKNOWN
from hermes_orm.dialects.base import Row
from hermes_orm.dialects.expressions import utc_day
from hermes_orm.models import Session, SessionModelUsage
from hermes_orm.repositories.base import Repository
from hermes_orm.rows import UsageStatistics

UsageGroup: TypeAlias = Literal["model", "provider", "task", "source", "day"]
"""What usage can be summed up by."""

_GROUPS: Final = get_args(UsageGroup)
_KEYS: Final = tuple(UsageStatistics.__annotations__)
_LATEST: Final[ColumnElement[float]] = literal_column("253402300799.0")
"""The end of the year 9999: neither database has a later day."""
_GREATEST: Final[ColumnElement[float]] = literal_column("1e300")
_EMPTY: Final[ColumnElement[str]] = literal_column("''")


def _reported() -> Select[Any]:
    """Select the usage of models, routes and tasks."""
    row, session = SessionModelUsage, Session
    return select(
        row.session_id,
        row.model,
        row.billing_provider.label("provider"),
        row.task,
        session.source,
        func.coalesce(row.last_seen, row.first_seen, session.started_at).label("moment"),
        *(getattr(row, name) for name in (*COUNTERS, *COSTS)),
    ).outerjoin_from(row, session, session.id == row.session_id)


def _totalled() -> Select[Any]:
    """Select the totals of sessions without such rows: imported, or reported as absolute."""
    row = aliased(SessionModelUsage)
    is_reported = select(row.session_id).where(row.session_id == Session.id, row.task == _EMPTY)
    amounts = [func.coalesce(getattr(Session, name), 0) for name in (*COUNTERS, *COSTS)]
    return select(
        Session.id,
        func.coalesce(func.nullif(Session.model, _EMPTY), literal_column(f"'{UNKNOWN}'")),
        func.coalesce(Session.billing_provider, _EMPTY),
        _EMPTY,
        Session.source,
        func.coalesce(Session.ended_at, Session.started_at),
        *amounts,
    ).where(~is_reported.exists(), sum(amounts, literal_column("0.0")) > literal_column("0"))


@lru_cache
def statistics(by: UsageGroup, bounds: frozenset[str]) -> Prepared:
    """Return the statement that sums usage up in groups, within bounds of time."""
    usage = union_all(_reported(), _totalled()).subquery("usage")
    moment = usage.c.moment
    is_time = moment.between(literal_column("0.0"), _LATEST)
    day = case((is_time, utc_day(moment)))
    group = func.coalesce(day if by == "day" else usage.c[by], _EMPTY)
    counters: list[ColumnElement[Any]] = [
        func.sum(cast(usage.c[name], Double())).label(name) for name in COUNTERS
    ]
    estimated, actual = (_finite(usage.c[name]) for name in COSTS)
    costs = [estimated, actual, case((actual > literal_column("0"), actual), else_=estimated)]
    conditions = {
        "since": moment >= bindparam("since", type_=Double()),
        "until": moment < bindparam("until", type_=Double()),
    }
    tokens = counters[0] + counters[1]
    return Prepared(
        select(
            group.label("key"),
            func.count(usage.c.session_id.distinct()),
            *counters,
            *(func.sum(cost) for cost in costs),
        )
        .where(*(condition for name, condition in conditions.items() if name in bounds))
        .group_by(literal_column("1"))
        .order_by(*(() if by == "day" else (tokens.desc(),)), literal_column("1"))
    )


def _finite(cost: ColumnElement[float]) -> ColumnElement[float]:
    return case((cost.between(-_GREATEST, _GREATEST), cost), else_=literal_column("0.0"))


class StatisticsRepository(Repository):
    """Usage over all sessions."""

    def usage_statistics(
        self, by: UsageGroup = "model", since: float | None = None, until: float | None = None
    ) -> list[UsageStatistics]:
        """Return usage in groups, the greatest first; days, which are of UTC, in their order.

        `key` names the group; it is empty for what has none, such as the task of the main loop.
        Usage of one session, model, route and task belongs to the time of its latest report, or to
        the end or else start of its session; `since` and `until`, exclusive, are Unix times. All
        sessions that are stored count. Raises ValueError for another group, and for a time that is
        not finite; TypeError for what is no number.
        """
        if by not in _GROUPS:
            raise ValueError(f"by must be one of {', '.join(_GROUPS)}")
        bounds = {"since": since, "until": until}
        given = {n: finite_number(t, n) for n, t in bounds.items() if t is not None}
        return [_summed_up(row) for row in self.tx.all(statistics(by, frozenset(given)), given)]


def _summed_up(row: Row) -> UsageStatistics:
    summed = dict(zip(_KEYS, row, strict=True))
    return typed(UsageStatistics, summed | {name: int(summed[name]) for name in COUNTERS})
