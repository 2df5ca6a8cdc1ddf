"""How a report of token usage is counted on PostgreSQL: one statement."""

from __future__ import annotations

from functools import lru_cache

from sqlalchemy import literal_column, select

from hermes_orm.dialects.accounting import ROUTE, Kind, counted, spent
from hermes_orm.dialects.base import Accounting, Transaction
from hermes_orm.dialects.prepared import Params, Prepared
from hermes_orm.models import Session


class PostgreSQLAccounting(Accounting):
    """Reports on PostgreSQL."""

    def spend(self, tx: Transaction, report: Params, kind: Kind) -> None:
        """Count a report in its session and in its usage row."""
        tx.first(_counted_and_spent(kind), report)


@lru_cache
def _counted_and_spent(kind: Kind) -> Prepared:
    route = (getattr(Session, name) for name in ROUTE)
    session = counted(kind).returning(Session.id, *route).cte("session")
    row = spent(session).cte("spent")
    return Prepared(select(literal_column("1")).add_cte(session, row), modifies=True)
