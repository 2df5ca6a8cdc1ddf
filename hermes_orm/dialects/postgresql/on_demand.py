"""Tables outside the core schema: the migration makes them, since stores may not run DDL."""

from __future__ import annotations

from sqlalchemy import FromClause

from hermes_orm.dialects.base import OnDemand, Transaction


class PostgreSQLOnDemand(OnDemand):
    """They are there."""

    def columns(self, tx: Transaction, table: FromClause) -> frozenset[str]:
        """Return what the model says."""
        return frozenset(table.columns.keys())

    def establish(self, tx: Transaction, *tables: FromClause) -> bool:
        """Do nothing."""
        return False
