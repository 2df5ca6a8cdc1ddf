"""Moving a database between revisions, for tests of the revisions themselves."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cache
from typing import Any, TypeVar

from alembic.config import Config
from alembic.runtime.environment import EnvironmentContext
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, NullPool, create_engine, text
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from hermes_orm.dialects.revising import Schema
from hermes_orm.dialects.revision_runs import CONTEXT_OPTIONS, run_revisions, script_folder
from hermes_orm.dialects.sqlite import driver as sqlite_driver
from tests.migrations.catalogue import POSTGRES, SQLITE, normal

T = TypeVar("T")
Shape = dict[str, list[tuple[Any, ...]]]


@cache
def script() -> ScriptDirectory:
    return ScriptDirectory(str(script_folder()))


class Database:
    """A database on which revisions run; each call is a transaction."""

    def __init__(self, location: str) -> None:
        self.location = location
        self.is_postgres = location.startswith("postgresql")

    async def __call__(self, work: Callable[[Connection], T]) -> T:
        """Run `work` on a connection and commit."""
        if not self.is_postgres:
            return self._on_file(work)
        async with self._connected() as connection:
            return await connection.run_sync(work)

    def _on_file(self, work: Callable[[Connection], T]) -> T:
        module = sqlite_driver.module()

        def connect() -> Any:
            return module.connect(self.location, isolation_level=None)

        engine = create_engine("sqlite://", creator=connect, module=module, poolclass=NullPool)
        with engine.begin() as connection:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            return work(connection)

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[AsyncConnection]:
        engine = create_async_engine(self.location, poolclass=NullPool)
        async with engine.begin() as connection:
            yield connection

    async def run(self, *statements: str, **values: Any) -> None:
        """Run statements with the same values."""
        await self(lambda connection: [connection.execute(text(s), values) for s in statements])

    async def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        return await self(
            lambda connection: [tuple(row) for row in connection.execute(text(query))]
        )

    async def upgrade(self, revision: str, **attributes: Any) -> None:
        await self(lambda connection: move(connection, revision, up=True, **attributes))

    async def downgrade(self, revision: str, **attributes: Any) -> None:
        await self(lambda connection: move(connection, revision, up=False, **attributes))

    async def fill_again(self, revision: str) -> None:
        """Run a revision's data step another time."""
        await self(lambda connection: module_of(revision).fill(schema_on(connection)))

    async def shape(self) -> Shape:
        """Return the definitions of all objects."""
        return await self(shape)


def move(connection: Connection, revision: str, *, up: bool, **attributes: Any) -> None:
    """Run the revisions up or down to `revision`, as env.py does."""
    find = script()._upgrade_revs if up else script()._downgrade_revs

    def steps(current: Any, context: MigrationContext) -> Any:
        return find(revision, current or None)  # type: ignore[arg-type]

    config = Config(attributes=attributes)
    with EnvironmentContext(config, script(), fn=steps, destination_rev=revision) as environment:
        environment.configure(connection=connection, **CONTEXT_OPTIONS)
        run_revisions(environment.get_context())


def module_of(revision: str) -> Any:
    return script().get_revision(revision).module


def schema_on(connection: Connection) -> Schema:
    return Schema(MigrationContext.configure(connection, opts=CONTEXT_OPTIONS))


def shape(connection: Connection) -> Shape:
    queries = POSTGRES if connection.dialect.name == "postgresql" else SQLITE
    return {
        name: [tuple(map(normal, row)) for row in connection.exec_driver_sql(query)]
        for name, query in queries.items()
        if name != "extensions"  # they serve others, too: a downgrade leaves them
    }
