"""Maintenance of the store's tables on a PostgreSQL server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sqlalchemy import bindparam, text
from sqlalchemy.dialects.postgresql import ARRAY

from hermes_orm.dialects.base import Transaction
from hermes_orm.dialects.postgresql.lines import is_closed
from hermes_orm.dialects.postgresql.transaction import PostgreSQLTransaction
from hermes_orm.dialects.upkeep import Upkeep
from hermes_orm.models.base import TEXT, Base

TABLES: Final = tuple(Base.metadata.tables)

SIZE: Final = text(
    "SELECT sum(pg_total_relation_size(pg_class.oid)) FROM pg_class "
    "JOIN pg_namespace AS space ON space.oid = relnamespace "
    "WHERE nspname = current_schema() AND relname = ANY (:tables)"
).bindparams(bindparam("tables", list(TABLES), ARRAY(TEXT)))


@contextmanager
def unhurried(tx: Transaction) -> Iterator[PostgreSQLTransaction]:
    """Lift `statement_timeout` for a unit of scope `maintenance`.

    A pooler's server is shared, and keeps it.
    """
    assert isinstance(tx, PostgreSQLTransaction)
    if not tx.is_direct:
        yield tx
        return
    driver = tx.connection.connection.driver_connection
    tx.command("SET statement_timeout = 0")
    try:
        yield tx
    finally:
        if not is_closed(driver):
            tx.command("RESET statement_timeout")


class PostgreSQLUpkeep(Upkeep):
    """The store's tables; others in the same database are not touched."""

    def size(self, tx: Transaction) -> int:
        """Return the bytes of tables with their indexes and long values."""
        return int(tx.connection.scalar(SIZE) or 0)

    def is_worth_vacuuming(self, tx: Transaction) -> bool:
        """Always: a plain VACUUM locks nobody out and rewrites nothing."""
        return True

    def vacuum(self, tx: Transaction) -> None:
        """Make room of deleted rows usable again, and refresh the planner's statistics."""
        with unhurried(tx) as own:
            own.command("ANALYZE messages")
            own.command(f"VACUUM (ANALYZE) {', '.join(TABLES)}")
