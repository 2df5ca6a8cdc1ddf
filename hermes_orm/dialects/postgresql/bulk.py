"""Loading whole tables into a PostgreSQL database."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import ForeignKeyConstraint, Select, Table, exists, func, not_, select

from hermes_orm.dialects.base import Row, Transaction
from hermes_orm.dialects.bulk import Bulk
from hermes_orm.dialects.indexing import defer_rebuild
from hermes_orm.dialects.postgresql.references import add_reference, references
from hermes_orm.dialects.postgresql.transaction import PostgreSQLTransaction
from hermes_orm.dialects.recency import fill_recency
from hermes_orm.models import Base

TRIGGERED = ("sessions", "messages")
SEQUENCE = "pg_get_serial_sequence('messages', 'id')"


class PostgreSQLBulk(Bulk):
    """Rows come by COPY; triggers are off and references dropped meanwhile."""

    def columns(self, tx: Transaction, table: Table) -> tuple[str, ...]:
        """Return the names of the columns that a table really has."""
        rows = tx.connection.exec_driver_sql(
            "SELECT attname FROM pg_attribute WHERE attnum > 0 AND NOT attisdropped "
            f"AND attrelid = to_regclass('{table.name}') ORDER BY attnum"
        )
        return tuple(row[0] for row in rows)

    def tables(self, tx: Transaction) -> frozenset[str]:
        """Return the names of the tables."""
        rows = tx.connection.exec_driver_sql(
            "SELECT relname FROM pg_class "
            "WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace"
        )
        return frozenset(row[0] for row in rows)

    def suspend(self, tx: Transaction) -> None:
        """Switch triggers off and drop references, whose rows may come in any order."""
        execute = tx.connection.exec_driver_sql
        for name in TRIGGERED:
            execute(f"ALTER TABLE {name} DISABLE TRIGGER USER")
        preparer = tx.connection.dialect.identifier_preparer
        for reference in references().values():
            constraint = preparer.format_constraint(reference)
            execute(f"ALTER TABLE {reference.table.name} DROP CONSTRAINT IF EXISTS {constraint}")

    def load(
        self, tx: Transaction, table: Table, names: Sequence[str], rows: Sequence[Row]
    ) -> None:
        """Insert rows by COPY."""
        assert isinstance(tx, PostgreSQLTransaction)
        tx.load(table.name, names, rows)

    def resume(self, tx: Transaction) -> dict[str, int]:
        """Create references again, not validated where rows refer to nothing."""
        connection = tx.connection
        fill_recency(connection)
        found: dict[str, int] = {}
        for name, reference in references().items():
            if dangling := connection.scalar(_dangling(reference)):
                found[name] = dangling
            add_reference(connection, name, is_validated=not dangling)
        for name in TRIGGERED:
            connection.exec_driver_sql(f"ALTER TABLE {name} ENABLE TRIGGER USER")
        defer_rebuild(connection)
        for table in Base.metadata.sorted_tables:
            connection.exec_driver_sql(f"ANALYZE {table.name}")
        return found

    def last_id(self, tx: Transaction) -> int:
        """Return the greatest id that a message ever had."""
        found = tx.connection.exec_driver_sql(
            f"SELECT greatest(pg_sequence_last_value({SEQUENCE}::regclass), "
            "(SELECT max(id) FROM messages), 0)"
        )
        return int(found.scalar_one())

    def set_last_id(self, tx: Transaction, last_id: int) -> None:
        """Have the next message get an id beyond `last_id`."""
        tx.connection.exec_driver_sql(f"SELECT setval({SEQUENCE}, {last_id + 1}, false)")


def _dangling(reference: ForeignKeyConstraint) -> Select[int]:
    (element,) = reference.elements
    target = element.column.table.alias()
    is_met = exists(select(1).where(target.c[element.column.name] == element.parent))
    return (
        select(func.count())
        .select_from(reference.table)
        .where(element.parent.is_not(None), not_(is_met))
    )
