"""A unit's view of a PostgreSQL connection: prepared statements on asyncpg's or psycopg's own calls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from sqlalchemy import Connection

from hermes_orm.dialects.base import NOTHING, Dialect, Row, Transaction
from hermes_orm.dialects.prepared import Params, Prepared

T = TypeVar("T")


class PostgreSQLTransaction(Transaction):
    """One unit on a pooled connection, inside SQLAlchemy's greenlet bridge.

    The SQLAlchemy connection is in AUTOCOMMIT; BEGIN and COMMIT are sent by the transport, around the unit.
    """

    __slots__ = ("_adapted", "_connection", "_has_modified", "_key", "_one_statement", "sent")

    def __init__(self, dialect: Dialect, connection: Connection, *, one_statement: bool) -> None:
        super().__init__(dialect)
        self._connection: Connection | None = connection
        self._adapted: Any = connection.connection.dbapi_connection
        self._key = connection.dialect
        self._one_statement = one_statement
        self._has_modified = False
        self.sent = False
        """Whether the server has answered anything: before that, a dead connection may be replaced."""

    def end(self) -> None:
        """Refuse every later statement: the connection belongs to somebody else soon."""
        self._connection = self._adapted = None

    @property
    def connection(self) -> Connection:
        """The SQLAlchemy connection."""
        if self._connection is None:
            raise RuntimeError("this unit of work has ended: no statement can run on it any more")
        return self._connection

    def awaited(self, call: Callable[[Any], Awaitable[T]]) -> T:
        """Await `call(driver connection)` from within the unit."""
        if self._connection is None:
            raise RuntimeError("this unit of work has ended: no statement can run on it any more")
        result: T = self._adapted.run_async(call)
        self.sent = True
        return result

    def _checked(self, statement: Prepared) -> None:
        if self._one_statement and statement.modifies:
            if self._has_modified:
                raise AssertionError(
                    "a second modifying statement in scope 'statement': each would commit by itself; "
                    "give the operation scope 'transaction'"
                )
            self._has_modified = True


class AsyncpgTransaction(PostgreSQLTransaction):
    """A unit on asyncpg."""

    __slots__ = ()

    def all(self, statement: Prepared, params: Params = NOTHING) -> Sequence[Row]:
        """Return every row."""
        self._checked(statement)
        text = statement.compiled(self._key)
        values = text.values(params)
        if not Prepared.on_driver:
            return self.connection.exec_driver_sql(text.text, values).fetchall()
        rows: Sequence[Row] = self.awaited(lambda driver: driver.fetch(text.text, *values))
        return rows

    def first(self, statement: Prepared, params: Params = NOTHING) -> Row | None:
        """Return the first row, or None."""
        rows = self.all(statement, params)
        return rows[0] if rows else None

    def run(self, statement: Prepared, params: Params = NOTHING) -> int:
        """Run a statement that returns no rows; return how many rows it changed."""
        self._checked(statement)
        text = statement.compiled(self._key)
        values = text.values(params)
        if not Prepared.on_driver:
            return int(self.connection.exec_driver_sql(text.text, values).rowcount)

        status = self.awaited(lambda driver: driver.execute(text.text, *values))
        return int(status.rpartition(" ")[2])

    def run_many(self, statement: Prepared, rows: Sequence[Params]) -> None:
        """Run a statement once per parameter set, in order, in one round trip per buffer."""
        self._checked(statement)
        text = statement.compiled(self._key)
        values = [text.values(row) for row in rows]
        self.awaited(lambda driver: driver.executemany(text.text, values))


class PsycopgTransaction(PostgreSQLTransaction):
    """A unit on psycopg 3."""

    __slots__ = ()

    def _send(self, statement: Prepared, params: Params, *, fetch: bool) -> Any:
        self._checked(statement)
        text = statement.compiled(self._key)
        values = text.named(params)
        if not Prepared.on_driver:
            cursor = self.connection.exec_driver_sql(text.text, values)
            return cursor.fetchall() if fetch else cursor.rowcount

        async def send(driver: Any) -> Any:
            cursor = await driver.execute(text.text, values)
            return await cursor.fetchall() if fetch else cursor.rowcount

        return self.awaited(send)

    def all(self, statement: Prepared, params: Params = NOTHING) -> Sequence[Row]:
        """Return every row."""
        rows: Sequence[Row] = self._send(statement, params, fetch=True)
        return rows

    def first(self, statement: Prepared, params: Params = NOTHING) -> Row | None:
        """Return the first row, or None."""
        rows = self.all(statement, params)
        return rows[0] if rows else None

    def run(self, statement: Prepared, params: Params = NOTHING) -> int:
        """Run a statement that returns no rows; return how many rows it changed."""
        return int(self._send(statement, params, fetch=False))

    def run_many(self, statement: Prepared, rows: Sequence[Params]) -> None:
        """Run a statement once per parameter set, in order, pipelined."""
        self._checked(statement)
        text = statement.compiled(self._key)
        values = [text.named(row) for row in rows]

        async def many(driver: Any) -> None:
            async with driver.cursor() as cursor:
                await cursor.executemany(text.text, values)

        self.awaited(many)
