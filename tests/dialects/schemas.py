"""Databases whose schema a test builds by itself, without a store."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, StaticPool, create_engine

from hermes_orm.dialects.sqlite import ddl, driver

Build = Callable[[Connection], object]


@contextmanager
def sqlite_file(path: Path | None = None) -> Iterator[Connection]:
    """A connection to a file, or to an empty database in memory; nothing begins by itself."""
    url = f"sqlite:///{path or ':memory:'}"
    engine = create_engine(url, poolclass=StaticPool, module=driver.module())
    with engine.connect() as connection:
        driver_of(connection).isolation_level = None
        yield connection
    engine.dispose()


@contextmanager
def fresh_sqlite(build: Build = ddl.create_head) -> Iterator[Any]:
    """The driver's connection to a database in memory that `build` has filled."""
    with sqlite_file() as connection:
        change(connection, build)
        yield driver_of(connection)


@contextmanager
def copied_sqlite(original: Path, folder: Path, build: Build | None = None) -> Iterator[Any]:
    """The driver's connection to a copy of a file, after `build`."""
    copy = folder / original.name
    shutil.copyfile(original, copy)
    with sqlite_file(copy) as connection:
        if build is not None:
            change(connection, build)
        yield driver_of(connection)


def change(connection: Connection, build: Build) -> None:
    """Run `build` in one immediate transaction, as opening a store does."""
    driver_of(connection).execute("BEGIN IMMEDIATE")
    with connection.begin():
        build(connection)


def driver_of(connection: Connection) -> Any:
    """The DB-API connection."""
    return connection.connection.driver_connection
