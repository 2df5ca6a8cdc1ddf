"""Tables outside the core schema: made when they are first needed, and by other programs, too."""

from __future__ import annotations

from typing import cast

from sqlalchemy import (
    Connection,
    FromClause,
    MetaData,
    Table,
    bindparam,
    column,
    func,
    insert,
    select,
)
from sqlalchemy.schema import CreateColumn, CreateIndex, CreateTable, DropTable

from hermes_orm.dialects.base import OnDemand, Transaction
from hermes_orm.dialects.prepared import Prepared

COLUMNS = Prepared(
    select(column("name")).select_from(func.pragma_table_info(bindparam("table_name")))
)


class SQLiteOnDemand(OnDemand):
    """They are looked for each time: another process may just have made them."""

    def columns(self, tx: Transaction, table: FromClause) -> frozenset[str] | None:
        """Return the names of the columns that a table has; None when it does not exist."""
        rows = tx.all(COLUMNS, {"table_name": cast(Table, table).name})
        return frozenset(row[0] for row in rows) or None

    def establish(self, tx: Transaction, *tables: FromClause) -> bool:
        """Create the tables, add columns that they lack, or build them anew for a wider key."""
        has_changed = False
        for table in cast(tuple[Table, ...], tables):
            found = self.columns(tx, table)
            lacking = set(table.columns.keys()) - (found or set())
            if not lacking:
                continue
            has_changed = True
            if found is None:
                tx.connection.execute(CreateTable(table))
            elif lacking.isdisjoint(table.primary_key.columns.keys()):
                _add_columns(tx.connection, table, lacking)
            else:
                _rebuild(tx.connection, table, found)
            for index in sorted(table.indexes, key=lambda index: str(index.name)):
                tx.connection.execute(CreateIndex(index, if_not_exists=True))
        return has_changed


def _add_columns(connection: Connection, table: Table, lacking: set[str]) -> None:
    for added in (each for each in table.columns if each.name in lacking):
        definition = CreateColumn(added).compile(dialect=connection.dialect)
        connection.exec_driver_sql(f"ALTER TABLE {table.name} ADD COLUMN {definition}")


def _rebuild(connection: Connection, table: Table, found: frozenset[str]) -> None:
    """Build the table anew with all its rows but those that refer to nothing."""
    metadata = MetaData()
    for reference in table.foreign_keys:
        reference.column.table.to_metadata(metadata)
    copy = table.to_metadata(metadata, name=f"{table.name}_new")
    connection.execute(DropTable(copy, if_exists=True))
    connection.execute(CreateTable(copy))
    kept = [each for each in table.columns if each.name in found]
    rows = select(*kept)
    for reference in table.foreign_keys:
        target = reference.column
        rows = rows.where(select(target).where(target == reference.parent).exists())
    connection.execute(insert(copy).from_select([each.name for each in kept], rows))
    connection.execute(DropTable(table))
    connection.exec_driver_sql(f"ALTER TABLE {copy.name} RENAME TO {table.name}")
