"""Maintenance of the store's tables on a PostgreSQL server."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import bindparam, text
from sqlalchemy.dialects.postgresql import ARRAY

from hermes_orm.dialects.base import Transaction
from hermes_orm.dialects.upkeep import Upkeep
from hermes_orm.models.base import TEXT, Base

TABLES: Final = tuple(Base.metadata.tables)

SIZE: Final = text(
    "SELECT sum(pg_total_relation_size(pg_class.oid)) FROM pg_class "
    "JOIN pg_namespace AS space ON space.oid = relnamespace "
    "WHERE nspname = current_schema() AND relname = ANY (:tables)"
).bindparams(bindparam("tables", list(TABLES), ARRAY(TEXT)))


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
        driver: Any = tx.connection.connection.dbapi_connection
        _send(driver, "SET statement_timeout = 0")
        try:
            _send(driver, "ANALYZE messages")
            _send(driver, f"VACUUM (ANALYZE) {', '.join(TABLES)}")
        finally:
            _send(driver, "RESET statement_timeout")


def _send(adapted: Any, command: str) -> None:
    adapted.run_async(lambda driver: driver.execute(command))
