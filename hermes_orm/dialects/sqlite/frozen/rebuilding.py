"""Rebuilding a table: what SQLite needs to drop columns or to change what a column allows."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Set

from alembic.util import CommandError
from sqlalchemy import Connection, RowMapping

from hermes_orm.dialects.migrating import Script

_LITERAL = re.compile(r"[-+]?[\w.]+|'[^']*'|\"[^\"]*\"")


def drop_columns(connection: Connection | Script, table: str, names: list[str]) -> None:
    """Drop columns that no index and no trigger names."""
    if isinstance(connection, Script):
        for name in names:
            connection.exec_driver_sql(f'ALTER TABLE {table} DROP COLUMN "{name}"')
    else:
        rebuild_table(connection, table, without=set(names))


def require_value(
    connection: Connection | Script, table: str, column: str, type_: str, default: str
) -> None:
    """Make a column NOT NULL with a default; NULL becomes the default."""
    if not isinstance(connection, Script):
        declared = {column: f"{type_} NOT NULL DEFAULT {default}"}
        rebuild_table(
            connection, table, declared=declared, values={column: f"coalesce({column}, {default})"}
        )


def add_foreign_key(
    connection: Connection | Script, table: str, column: str, target: tuple[str, str]
) -> None:
    """Make an existing column refer to a column of another table."""
    if not isinstance(connection, Script):
        rebuild_table(connection, table, references={column: target})


def rebuild_table(
    connection: Connection,
    table: str,
    *,
    without: Set[str] = frozenset(),
    declared: Mapping[str, str] | None = None,
    values: Mapping[str, str] | None = None,
    references: Mapping[str, tuple[str, str]] | None = None,
) -> None:
    """Make a table anew with all of its rows, indexes and triggers, and the last number it gave.

    `declared` and `values` replace a column's declaration and what is copied into it; `references`
    adds foreign keys. Columns that this project does not know stay.
    """
    if connection.exec_driver_sql("PRAGMA foreign_keys").scalar():
        raise CommandError("foreign keys must be off: dropping a table would delete child rows")
    columns = _columns(connection, table, without, declared or {})
    keys = _foreign_keys(connection, table, without)
    keys.extend(_reference(table, [name], *to) for name, to in (references or {}).items())
    dependents = connection.exec_driver_sql(
        f"SELECT sql FROM sqlite_schema WHERE tbl_name = '{table}' "
        "AND type IN ('index', 'trigger') AND sql IS NOT NULL ORDER BY type, rowid"
    ).all()
    last_number = _last_number(connection, table)
    new = f"hermes_new_{table}"
    names = ", ".join(f'"{name}"' for name in columns)
    copied = ", ".join((values or {}).get(name, f'"{name}"') for name in columns)
    legacy = connection.exec_driver_sql("PRAGMA legacy_alter_table").scalar()
    for statement in (
        f"CREATE TABLE {new} ({', '.join([*columns.values(), *keys])})",
        f"INSERT INTO {new} ({names}) SELECT {copied} FROM {table}",
        f"DROP TABLE {table}",
        # Else renaming would look into every view and trigger, also those of the dropped table.
        "PRAGMA legacy_alter_table = 1",
        f"ALTER TABLE {new} RENAME TO {table}",
        f"PRAGMA legacy_alter_table = {legacy}",
        *(row[0] for row in dependents),
    ):
        connection.exec_driver_sql(statement)
    if last_number is not None:
        _set_last_number(connection, table, last_number)


def _columns(
    connection: Connection, table: str, without: Set[str], declared: Mapping[str, str]
) -> dict[str, str]:
    """Return the declaration of each column that stays, the primary key included."""
    rows = connection.exec_driver_sql(f"PRAGMA table_xinfo({table})").mappings().all()
    if any(row["hidden"] for row in rows):
        raise CommandError(f"table {table} has generated columns: they can't be rebuilt")
    key = [row["name"] for row in sorted(rows, key=lambda row: row["pk"]) if row["pk"]]
    sql = connection.exec_driver_sql(
        f"SELECT sql FROM sqlite_schema WHERE type = 'table' AND name = '{table}'"
    ).scalar_one()
    numbered = " AUTOINCREMENT" if re.search(r"\bAUTOINCREMENT\b", sql, re.I) else ""
    found = {}
    for row in rows:
        name = row["name"]
        text = f'"{name}" {declared.get(name) or _declaration(row)}'
        if key == [name]:
            text += f" CONSTRAINT {table}_pkey PRIMARY KEY{numbered}"
        if name not in without:
            found[name] = text
    if len(key) > 1:
        # Appended to the last column: constraints of the table follow it anyway.
        listed = ", ".join(f'"{name}"' for name in key)
        found[name] += f", CONSTRAINT {table}_pkey PRIMARY KEY ({listed})"
    return found


def _declaration(row: RowMapping) -> str:
    default = row["dflt_value"]
    parts = [row["type"]]
    if row["notnull"]:
        parts.append("NOT NULL")
    if default is not None:
        parts.append(f"DEFAULT {default if _LITERAL.fullmatch(default) else f'({default})'}")
    return " ".join(parts)


def _foreign_keys(connection: Connection, table: str, without: Set[str]) -> list[str]:
    found: dict[int, list[RowMapping]] = defaultdict(list)
    for row in connection.exec_driver_sql(f"PRAGMA foreign_key_list({table})").mappings():
        found[row["id"]].append(row)
    keys = []
    for _, rows in sorted(found.items(), reverse=True):
        names = [row["from"] for row in rows]
        if without.isdisjoint(names):
            key = _reference(table, names, rows[0]["table"], *(row["to"] for row in rows))
            actions = f"ON UPDATE {rows[0]['on_update']} ON DELETE {rows[0]['on_delete']}"
            keys.append(f"{key} {actions}")
    return keys


def _reference(table: str, columns: list[str], target: str, *to: str | None) -> str:
    named = ", ".join(f'"{name}"' for name in to if name is not None)
    listed = ", ".join(f'"{name}"' for name in columns)
    return f"CONSTRAINT fk_{table}_{columns[0]} FOREIGN KEY ({listed}) REFERENCES {target}" + (
        f" ({named})" if named else ""
    )


def _last_number(connection: Connection, table: str) -> int | None:
    """Return the greatest row id that an AUTOINCREMENT table ever gave."""
    known = connection.exec_driver_sql(
        "SELECT count(*) FROM sqlite_schema WHERE name = 'sqlite_sequence'"
    ).scalar()
    query = f"SELECT max(seq) FROM sqlite_sequence WHERE name = '{table}'"
    number: int | None = connection.exec_driver_sql(query).scalar() if known else None
    return number


def _set_last_number(connection: Connection, table: str, number: int) -> None:
    connection.exec_driver_sql(f"DELETE FROM sqlite_sequence WHERE name = '{table}'")
    connection.exec_driver_sql(f"INSERT INTO sqlite_sequence VALUES ('{table}', {number})")
