"""What migrations need of a database: a connection under lock, and the DDL of its own."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import Connection, Dialect

from hermes_orm.config import Settings, load_settings
from hermes_orm.dialects.adoption import Adoption
from hermes_orm.home import hermes_home
from hermes_orm.location import Location, SqliteLocation

if TYPE_CHECKING:
    from alembic.runtime.migration import MigrationContext

T = TypeVar("T")


async def migrate_with(
    location: Location,
    action: Callable[[Connection], T],
    *,
    lock_wait: float,
    settings: Settings,
    adoption: Adoption | None,
) -> T:
    """Run `action` on a connection of its own while every other migration is locked out.

    With `adoption` a database that another program made is brought into our line of revisions
    first. Raises SchemaError when the lock is not had within `lock_wait` seconds, or when the
    database can't be used.
    """
    if isinstance(location, SqliteLocation):
        from hermes_orm.dialects.sqlite import migrating as sqlite

        return await sqlite.migrate_with(location, action, lock_wait, adoption)
    from hermes_orm.dialects.postgresql import migrating as postgresql

    return await postgresql.migrate_with(location, action, lock_wait, settings.postgres, adoption)


async def read_with(location: Location, action: Callable[[Connection], T]) -> T:
    """Run `action` on a connection that changes nothing and waits for nobody."""
    if isinstance(location, SqliteLocation):
        from hermes_orm.dialects.sqlite import migrating as sqlite

        return await sqlite.read_with(location, action)
    from hermes_orm.dialects.postgresql import migrating as postgresql

    return await postgresql.read_with(location, action, load_settings(hermes_home()).postgres)


def frozen_ddl(context: MigrationContext) -> Any:
    """Return the module with what the revisions do differently on the context's database."""
    return importlib.import_module(f"hermes_orm.dialects.{context.dialect.name}.frozen")


def connection_of(context: MigrationContext) -> Connection | Script:
    """Return what a revision runs driver statements on, also when it is written as a script."""
    if context.as_sql:
        return Script(context)
    assert context.connection is not None
    return context.connection


class Script:
    """Stands in for a connection when revisions are written as SQL: keeps statements as text."""

    def __init__(self, context: MigrationContext) -> None:
        self.dialect: Dialect = context.dialect
        self._write = context.impl.static_output

    def exec_driver_sql(self, statement: str) -> None:
        """Write a statement."""
        self._write(f"{statement.strip()};\n")
