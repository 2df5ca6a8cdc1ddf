"""Loading whole tables into a SQLite file."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence

from sqlalchemy import Table

from hermes_orm.dialects.base import Row, Transaction
from hermes_orm.dialects.bulk import Bulk
from hermes_orm.dialects.indexing import defer_rebuild
from hermes_orm.dialects.recency import fill_recency
from hermes_orm.dialects.sqlite import journal, opening
from hermes_orm.dialects.sqlite.display_ddl import create_display_triggers
from hermes_orm.dialects.sqlite.engine import SQLiteTransport
from hermes_orm.dialects.sqlite.recency_ddl import create_recency_triggers
from hermes_orm.dialects.sqlite.search_upkeep import create_search_objects, drop_search
from hermes_orm.dialects.sqlite.transaction import HeldConnection


class LoadingTransport(SQLiteTransport):
    """A file that only its loader uses: references are not enforced, no index is repaired."""

    def _prepare(self, held: HeldConnection) -> str:
        settings, driver = self._settings, held.driver
        opening.check_writable(driver, self._path, auto_migrate=False)
        label = os.path.basename(self._path)
        mode = journal.choose_journal(driver, configured=settings.journal_mode, label=label)
        journal.apply_pragmas(driver, settings.pragmas, busy_timeout_ms=journal.BUSY_TIMEOUT_MS)
        if not opening.is_current(driver):
            opening.ensure_schema(held)
        driver.execute("PRAGMA foreign_keys=OFF")
        return mode


class SQLiteBulk(Bulk):
    """Rows come by `executemany`; triggers and search index are dropped meanwhile."""

    def columns(self, tx: Transaction, table: Table) -> tuple[str, ...]:
        """Return the names of the columns that a table really has."""
        rows = tx.connection.exec_driver_sql("SELECT name FROM pragma_table_info(?)", (table.name,))
        return tuple(row[0] for row in rows)

    def tables(self, tx: Transaction) -> frozenset[str]:
        """Return the names of the tables."""
        rows = tx.connection.exec_driver_sql(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT GLOB 'sqlite_*' "
            "AND name NOT GLOB 'messages_fts*' AND name NOT GLOB 'fts_v22_trash_*'"
        )
        return frozenset(row[0] for row in rows)

    def suspend(self, tx: Transaction) -> None:
        """Drop all triggers and the search index."""
        connection = tx.connection
        drop_search(connection)
        triggers = connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type='trigger'")
        for (name,) in triggers.all():
            connection.exec_driver_sql(f'DROP TRIGGER "{name}"')

    def load(
        self, tx: Transaction, table: Table, names: Sequence[str], rows: Sequence[Row]
    ) -> None:
        """Insert rows."""
        columns = ", ".join(f'"{name}"' for name in names)
        places = ", ".join("?" * len(names))
        tx.connection.exec_driver_sql(
            f"INSERT INTO {table.name} ({columns}) VALUES ({places})", [tuple(row) for row in rows]
        )

    def resume(self, tx: Transaction) -> dict[str, int]:
        """Create triggers and an empty search index that is filled in steps."""
        connection = tx.connection
        fill_recency(connection)
        create_recency_triggers(connection)
        create_display_triggers(connection)
        create_search_objects(connection)
        defer_rebuild(connection)
        return dangling(tx)

    def last_id(self, tx: Transaction) -> int:
        """Return the greatest id that a message ever had."""
        found = tx.connection.exec_driver_sql(
            "SELECT max(coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'messages'), 0), "
            "coalesce((SELECT max(id) FROM messages), 0))"
        )
        return int(found.scalar_one())

    def set_last_id(self, tx: Transaction, last_id: int) -> None:
        """Have the next message get an id beyond `last_id`."""
        execute = tx.connection.exec_driver_sql
        execute("DELETE FROM sqlite_sequence WHERE name = 'messages'")
        execute("INSERT INTO sqlite_sequence (name, seq) VALUES ('messages', ?)", (last_id,))


def dangling(tx: Transaction) -> dict[str, int]:
    """Return how many rows refer to nothing, by the column."""
    violations = tx.connection.exec_driver_sql("PRAGMA foreign_key_check").all()
    references = {
        (table, number): column
        for table in {row[0] for row in violations}
        for number, _, _, column, *_ in tx.connection.exec_driver_sql(
            f'PRAGMA foreign_key_list("{table}")'
        )
    }
    return dict(Counter(f"{row[0]}.{references[row[0], row[3]]}" for row in violations))
