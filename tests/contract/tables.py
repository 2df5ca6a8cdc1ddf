"""All rows of a store's tables, to be compared and put back."""

import json
from typing import Any

import psycopg
from sqlalchemy import make_url

from hermes_orm.dialects.sqlite import driver as sqlite_driver

OF_THE_MOMENT = {
    "acquired_at",
    "delivery_claimed_at",
    "expires_at",
    "lease_expires_at",
    "message_uid",
}
"""Columns that hold the time of the server, or chance."""

Rows = list[str]


class Tables:
    """A connection of its own that reads and restores what the tables held when it was made."""

    def __init__(self, location: str) -> None:
        self.is_postgres = location.startswith("postgresql")
        self._connection: Any = _Postgres(location) if self.is_postgres else _Sqlite(location)
        self.before: Rows = self.rows()

    def rows(self) -> Rows:
        """Return every row as text, in an order of their own."""
        found = self._connection.rows()
        return sorted(
            json.dumps(
                [table, {k: v for k, v in row.items() if k not in OF_THE_MOMENT}],
                sort_keys=True,
                default=str,
            )
            for table, row in found
        )

    def moment(self) -> int:
        """Return a number that is another one once something was written."""
        return int(self._connection.moment())

    def restore(self) -> None:
        """Put back what was there first, and let row ids go on from there."""
        if self.rows() != self.before:
            self._connection.restore()
        self._connection.rewind()

    def close(self) -> None:
        self._connection.close()


class _Sqlite:
    def __init__(self, path: str) -> None:
        module = sqlite_driver.module()
        self._connection = module.connect(path, isolation_level=None, timeout=10)
        self._connection.execute("PRAGMA synchronous=OFF")
        self._seed = module.connect(":memory:")
        self._connection.backup(self._seed)
        names = self._connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table'"
            " AND name NOT LIKE 'messages\\_fts%' ESCAPE '\\'"
        )
        self._tables = [name for (name,) in names]

    def rows(self) -> list[tuple[str, dict[str, Any]]]:
        found = []
        for table in self._tables:
            cursor = self._connection.execute(f"SELECT * FROM {table}")
            keys = [column[0] for column in cursor.description]
            found += [(table, dict(zip(keys, row, strict=True))) for row in cursor]
        return found

    def moment(self) -> Any:
        return self._connection.execute("PRAGMA data_version").fetchone()[0]

    def restore(self) -> None:
        self._seed.backup(self._connection)

    def rewind(self) -> None:
        """Do nothing: an id that was rolled back is given again."""

    def close(self) -> None:
        self._connection.close()
        self._seed.close()


class _Postgres:
    def __init__(self, location: str) -> None:
        url = make_url(location).set(drivername="postgresql")
        self._connection = psycopg.connect(
            url.render_as_string(hide_password=False),
            autocommit=True,
            options="-c session_replication_role=replica -c statement_timeout=10000",
        )
        names = self._connection.execute(
            "SELECT table_name, string_agg(quote_ident(column_name), ', ')"
            " FROM information_schema.columns JOIN information_schema.tables"
            " USING (table_schema, table_name)"
            " WHERE table_schema = current_schema() AND table_type = 'BASE TABLE'"
            " AND is_generated = 'NEVER' GROUP BY 1"
        ).fetchall()
        self._read: Any = " UNION ALL ".join(
            f"SELECT '{name}', to_jsonb(t) FROM {name} t" for name, _ in names
        )
        changes = [f"DELETE FROM {name};" for name, _ in names]
        copies = ["CREATE SCHEMA before;"]
        for name, columns in names:
            copies.append(f"CREATE TABLE before.{name} AS SELECT {columns} FROM {name};")
            changes.append(
                f"INSERT INTO {name} ({columns}) OVERRIDING SYSTEM VALUE"
                f" SELECT {columns} FROM before.{name};"
            )
        self._connection.execute("".join(copies))
        self._restore: Any = "BEGIN;" + "".join(changes) + "COMMIT;"
        self._rewind: Any = (
            "SELECT setval(pg_get_serial_sequence('messages', 'id'), max(id)) FROM before.messages"
        )

    def rows(self) -> list[tuple[str, dict[str, Any]]]:
        return self._connection.execute(self._read).fetchall()

    def moment(self) -> Any:
        # The next transaction's number: others of the server count as well.
        row = self._connection.execute("SELECT pg_snapshot_xmax(pg_current_snapshot())").fetchone()
        return row and row[0]

    def restore(self) -> None:
        self._connection.execute(self._restore)

    def rewind(self) -> None:
        self._connection.execute(self._rewind)

    def close(self) -> None:
        self._connection.close()
