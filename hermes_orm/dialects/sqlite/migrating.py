"""Connections that change the schema of a SQLite file."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, NullPool, create_engine, inspect

from hermes_orm.dialects.sqlite import ddl, opening
from hermes_orm.dialects.sqlite import driver as sqlite_driver
from hermes_orm.errors import SchemaError
from hermes_orm.location import SqliteLocation
from hermes_orm.models import AlembicVersion

T = TypeVar("T")


async def migrate_with(
    location: SqliteLocation, action: Callable[[Connection], T], lock_wait: float
) -> T:
    """Run `action` in one immediate transaction; another program's file of the head is stamped."""
    path = location.path
    path.parent.mkdir(parents=True, exist_ok=True)
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))

    def run() -> T:
        with _engine(path, timeout=lock_wait).begin() as connection:
            _is_unstamped(connection)  # a refusal must not even take the write lock
            _lock(connection, lock_wait)
            if _is_unstamped(connection):
                ddl.complete_head(connection)
            return action(connection)

    return await asyncio.to_thread(run)


async def read_with(location: SqliteLocation, action: Callable[[Connection], T]) -> T:
    """Run `action` on a connection that can't write; a missing file is an OperationalError."""

    def run() -> T:
        with _engine(location.path, mode="ro").connect() as connection:
            return action(connection)

    return await asyncio.to_thread(run)


def _engine(path: Path, *, mode: str = "rw", timeout: float = 5.0) -> Engine:
    module = sqlite_driver.module()

    def connect() -> Any:
        uri = f"{path.absolute().as_uri()}?mode={mode}"
        return module.connect(uri, uri=True, timeout=timeout, isolation_level=None)

    return create_engine("sqlite+pysqlite://", creator=connect, module=module, poolclass=NullPool)


def _lock(connection: Connection, wait: float) -> None:
    try:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    except Exception as error:
        if not sqlite_driver.is_busy(sqlite_driver.as_standard(error)):
            raise
        raise SchemaError(
            f"the file is locked by another process since {wait:.0f} s or longer: "
            "wait for its migration or close it, then try again"
        ) from error


def _is_unstamped(connection: Connection) -> bool:
    """Whether a file of the newest schema bears no stamp; raise SchemaError for an unknown file."""
    if inspect(connection).has_table(AlembicVersion.__tablename__):
        return False
    return opening.recognise(connection.connection.driver_connection) == "current"
