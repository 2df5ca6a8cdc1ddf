"""How a report of token usage is counted on SQLite: two statements."""

from __future__ import annotations

from hermes_orm.dialects.accounting import Kind, count, spent
from hermes_orm.dialects.base import Accounting, Transaction
from hermes_orm.dialects.prepared import Params, Prepared
from hermes_orm.models import Session

SPENT = Prepared(spent(Session.__table__))


class SQLiteAccounting(Accounting):
    """Reports on SQLite."""

    def spend(self, tx: Transaction, report: Params, kind: Kind) -> None:
        """Count a report in its session and in its usage row."""
        tx.run(count(kind), report)
        tx.run(SPENT, report)
