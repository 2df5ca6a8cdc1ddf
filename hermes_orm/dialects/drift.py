"""Differences between a database and the models; what is not in the models is nobody's business."""

import warnings
from collections.abc import Iterator
from typing import Any

from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, inspect

from hermes_orm.models import AlembicVersion, Base, MessageSearch
from hermes_orm.models.own import ON_DEMAND_TABLES, OWN_TABLES

OPTIONS: dict[str, Any] = {"compare_type": True, "compare_server_default": True}


def drift(connection: Connection) -> list[str]:
    """Return what a migration would have to change so that the database fits the models."""
    is_sqlite = connection.dialect.name == "sqlite"
    absent = {MessageSearch.__tablename__, *ON_DEMAND_TABLES} if is_sqlite else set()
    if not inspect(connection).has_table(AlembicVersion.__tablename__):
        absent |= OWN_TABLES  # another program's file: opening a store adds them

    def concerns_us(thing: Any, name: str, kind: str, is_reflected: bool, other: Any) -> bool:
        if is_reflected and other is None:  # of the host or another program
            return False
        if is_sqlite and kind == "foreign_key_constraint":
            return False  # upgraded files lack some; broken references are found in the rows
        table = name if kind == "table" else getattr(thing, "table", thing).name
        return table not in absent

    options = {**OPTIONS, "include_object": concerns_us}
    context = MigrationContext.configure(connection, opts=options)
    with warnings.catch_warnings(action="ignore"):  # SQLite reflects no expressions of indexes
        differences = compare_metadata(context, Base.metadata)
    return [_words(entry) for entry in _flat(differences) if not (is_sqlite and _is_key(entry))]


def _flat(differences: list[Any]) -> Iterator[Any]:
    for entry in differences:
        yield from entry if isinstance(entry, list) else [entry]


def _is_key(entry: Any) -> bool:
    """Whether a primary key differs: SQLite's may be NULL, and integers need no identity."""
    change, *rest = entry
    if change not in ("modify_nullable", "modify_default"):
        return False
    return bool(Base.metadata.tables[rest[1]].columns[rest[2]].primary_key)


def _words(entry: Any) -> str:
    """Return a difference as Alembic's name of the change and what it concerns."""
    change, *rest = entry
    names = [part if isinstance(part, str) else getattr(part, "name", "") for part in rest]
    return f"{change}: {'.'.join(name for name in names if name)}"
