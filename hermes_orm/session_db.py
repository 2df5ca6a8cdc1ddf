"""The public store: how it is made, closed and shared; what it does stands in `operations`."""

from __future__ import annotations

import copy
import functools
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sqlalchemy.ext.asyncio import AsyncConnection

from hermes_orm.database import DEFAULT_PATIENCE, Database
from hermes_orm.dialects import make_dialect
from hermes_orm.location import SqliteLocation, locate
from hermes_orm.operations.gateway import GatewayOperations
from hermes_orm.operations.messages import MessageOperations
from hermes_orm.operations.portability import PortabilityOperations
from hermes_orm.operations.retention import RetentionOperations
from hermes_orm.operations.search import SearchOperations
from hermes_orm.operations.sessions import SessionOperations
from hermes_orm.operations.usage import UsageOperations
from hermes_orm.services import indexing

Lend = Callable[[Callable[[AsyncConnection], Awaitable[Any]]], Awaitable[Any]]


class SessionDB(
    SessionOperations,
    MessageOperations,
    SearchOperations,
    UsageOperations,
    RetentionOperations,
    PortabilityOperations,
    GatewayOperations,
):
    """Session store for AIAgent on SQLite or PostgreSQL.

    `db_path` is a file (None: `state.db` in the Hermes home), `:memory:`, or a URL
    `postgresql+asyncpg://...` or `postgresql+psycopg://...`. Nothing is opened before the first
    operation; the host closes the store once. Bad arguments raise ValueError or TypeError.
    """

    def __init__(
        self, db_path: str | os.PathLike[str] | None = None, read_only: bool = False
    ) -> None:
        location = locate(db_path)
        self.db_path: Path | str = (
            location.path if isinstance(location, SqliteLocation) else str(location)
        )
        self.read_only = read_only
        self.database = Database(location, dialect=make_dialect(location), read_only=read_only)
        self.database.after_opening = indexing.follow

    def __repr__(self) -> str:
        return f"SessionDB({str(self.db_path)!r}, read_only={self.read_only})"

    async def close(self) -> None:
        """Finish what runs and close every connection; operations raise RuntimeError then."""
        await self.database.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    @asynccontextmanager
    async def transaction(self, *, patience: float = DEFAULT_PATIENCE) -> AsyncIterator[Self]:
        """Yield a unit with the operations of the store, which commit together or not at all.

        Other writers of a SQLite file wait until the block ends, those of PostgreSQL where they
        need the same rows; the store itself reads what is committed. `patience` seconds are
        waited for others at the begin, inside no operation waits. Leaving by an error or a
        cancellation undoes everything; so does an operation that has failed, after which the unit
        takes no other. Raises RuntimeError for operations that wait or commit in steps, for a
        write of the same task through the store, and for a transaction inside of another.
        """
        async with self.database.transaction(patience) as database:
            unit = copy.copy(self)
            unit.database = database
            yield unit

    # The agent keeps its delegations, by SQL of its own, in a store that has these names.
    @property
    def _read_only(self) -> bool:
        return self.read_only

    @property
    def _read(self) -> Lend:
        return self._lending(commits=False)

    @property
    def _write(self) -> Lend:
        return self._lending(commits=True)

    def _lending(self, *, commits: bool) -> Lend:
        if not self.database.dialect.lends_connections:
            raise AttributeError("only a PostgreSQL store lends its connections")
        return functools.partial(self.database.lend, commits=commits)
