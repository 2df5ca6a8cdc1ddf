"""A unit's view of a PostgreSQL connection: statements on asyncpg's or psycopg's own calls."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, TypeVar, cast

from sqlalchemy import Connection, UpdateBase, literal_column, select

from hermes_orm.dialects.base import NOTHING, Dialect, Row, Transaction
from hermes_orm.dialects.prepared import CompiledText, Params, Prepared

T = TypeVar("T")

READ_COMMITTED = "BEGIN ISOLATION LEVEL READ COMMITTED"
SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY"
FETCHED_AT_ONCE = 2000
"""Rows up to which one answer may be long; psycopg would hold 64 MB for 10,000 messages."""
STEP = 1000


class PostgreSQLTransaction(Transaction):
    """One unit on a pooled connection, inside SQLAlchemy's greenlet bridge.

    The SQLAlchemy connection is in AUTOCOMMIT; the transport sends BEGIN and COMMIT around it.
    """

    __slots__ = (
        "_adapted",
        "_connection",
        "_has_modified",
        "_key",
        "_one_statement",
        "in_snapshot",
        "is_direct",
        "sent",
    )

    def __init__(
        self, dialect: Dialect, connection: Connection, *, one_statement: bool, is_direct: bool
    ) -> None:
        super().__init__(dialect)
        self._connection: Connection | None = connection
        self._adapted: Any = connection.connection.dbapi_connection
        self._key = connection.dialect
        self._one_statement = one_statement
        self._has_modified = False
        self.is_direct = is_direct
        """Whether the server's session is ours: a pooler gives it to the next client."""
        self.in_snapshot = False
        """Whether a unit of one statement has begun a snapshot: a failure leaves it open."""
        self.sent = False
        """Whether the server has answered: before that, a dead connection may be replaced."""

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

    def command(self, command: str) -> Any:
        """Send a statement without parameters; return what the driver answers."""
        return self.awaited(lambda driver: driver.execute(command))

    def commit(self) -> None:
        """Commit; RuntimeError when the server rolls back, because a statement has failed."""
        answer = self.command("COMMIT")
        if getattr(answer, "statusmessage", answer) != "COMMIT":  # psycopg, asyncpg
            raise RuntimeError(
                "a unit of work went on after a failed statement: the server rolled it back"
            )

    def all(self, statement: Prepared, params: Params = NOTHING) -> Sequence[Row]:
        """Return every row."""
        rows = self._fetch(self._permitted(statement), params)
        self._has_modified |= statement.modifies
        return rows

    def first(self, statement: Prepared, params: Params = NOTHING) -> Row | None:
        """Return the first row, or None."""
        rows = self.all(statement, params)
        return rows[0] if rows else None

    def each(self, statement: Prepared, params: Params) -> Iterator[Row]:
        """Yield the rows of a SELECT; many rows in steps, of which one at a time is held.

        Steps need a snapshot: a unit of one statement starts over in one.
        """
        position = dict(params)
        left = params["limit"]
        if self._one_statement:
            position["limit"] = min(left, FETCHED_AT_ONCE + 1)
            rows = self.all(statement, position)
            if len(rows) <= FETCHED_AT_ONCE:
                yield from rows
                return
            self.in_snapshot = True  # also when the answer is not waited for
            self.command(SNAPSHOT)
        while left > 0:
            position["limit"] = min(left, STEP)
            rows = self.all(statement, position)
            yield from rows
            if len(rows) < STEP:
                break
            left -= STEP
            position.update(from_id=rows[-1][0], offset=0)
        if self.in_snapshot:
            self.command("COMMIT")
            self.in_snapshot = False

    def run(self, statement: Prepared, params: Params = NOTHING) -> int:
        """Run a statement that returns no rows; return how many rows it changed."""
        changed = self._run(self._permitted(statement), params)
        self._has_modified |= statement.modifies
        return changed

    def run_together(self, statements: tuple[Prepared, ...], params: Params) -> None:
        """Run statements that change different rows as one, so in one round trip."""
        self.run(_together(statements), params)

    def run_many(self, statement: Prepared, rows: Sequence[Params]) -> None:
        """Run a statement once per parameter set, in order, in one round trip per buffer."""
        self._run_many(self._permitted(statement), rows)
        self._has_modified |= statement.modifies

    def _permitted(self, statement: Prepared) -> CompiledText:
        if self._one_statement and self._has_modified and statement.modifies:
            raise AssertionError(
                "a second modifying statement in scope 'statement': each would commit by itself; "
                "give the operation scope 'transaction'"
            )
        return statement.compiled(self._key)

    @abstractmethod
    def load(self, table: str, names: Sequence[str], rows: Sequence[Row]) -> None:
        """Insert rows by COPY; their values have the Python types of their columns."""

    @abstractmethod
    def _fetch(self, text: CompiledText, params: Params) -> Sequence[Row]:
        """Send a statement that returns rows."""

    @abstractmethod
    def _run(self, text: CompiledText, params: Params) -> int:
        """Send a statement that returns no rows."""

    @abstractmethod
    def _run_many(self, text: CompiledText, rows: Sequence[Params]) -> None:
        """Send a statement with several parameter sets."""


@lru_cache
def _together(statements: tuple[Prepared, ...]) -> Prepared:
    parts = [cast(UpdateBase, prepared.statement).cte() for prepared in statements]
    return Prepared(select(literal_column("1")).add_cte(*parts), modifies=True)


class AsyncpgTransaction(PostgreSQLTransaction):
    """A unit on asyncpg."""

    __slots__ = ()

    def _fetch(self, text: CompiledText, params: Params) -> Sequence[Row]:
        values = text.values(params)
        if not Prepared.on_driver:
            return self.connection.exec_driver_sql(text.text, values).fetchall()
        rows: Sequence[Row] = self.awaited(lambda driver: driver.fetch(text.text, *values))
        return rows

    def _run(self, text: CompiledText, params: Params) -> int:
        values = text.values(params)
        if not Prepared.on_driver:
            return int(self.connection.exec_driver_sql(text.text, values).rowcount)
        status = self.awaited(lambda driver: driver.execute(text.text, *values))
        return int(status.rpartition(" ")[2])

    def _run_many(self, text: CompiledText, rows: Sequence[Params]) -> None:
        values = [text.values(row) for row in rows]
        self.awaited(lambda driver: driver.executemany(text.text, values))

    def load(self, table: str, names: Sequence[str], rows: Sequence[Row]) -> None:
        """Insert rows by COPY."""
        self.awaited(
            lambda driver: driver.copy_records_to_table(table, records=rows, columns=names)
        )


class PsycopgTransaction(PostgreSQLTransaction):
    """A unit on psycopg 3."""

    __slots__ = ()

    def _fetch(self, text: CompiledText, params: Params) -> Sequence[Row]:
        values = text.named(params)
        if not Prepared.on_driver:
            return self.connection.exec_driver_sql(text.text, values).fetchall()

        async def fetch(driver: Any) -> Sequence[Row]:
            rows: Sequence[Row] = await (await driver.execute(text.text, values)).fetchall()
            return rows

        return self.awaited(fetch)

    def _run(self, text: CompiledText, params: Params) -> int:
        values = text.named(params)
        if not Prepared.on_driver:
            return int(self.connection.exec_driver_sql(text.text, values).rowcount)

        async def run(driver: Any) -> int:
            return int((await driver.execute(text.text, values)).rowcount)

        return self.awaited(run)

    def _run_many(self, text: CompiledText, rows: Sequence[Params]) -> None:
        values = [text.named(row) for row in rows]

        async def many(driver: Any) -> None:
            async with driver.cursor() as cursor:
                await cursor.executemany(text.text, values)

        self.awaited(many)

    def load(self, table: str, names: Sequence[str], rows: Sequence[Row]) -> None:
        """Insert rows by COPY."""
        command = f"COPY {table} ({', '.join(names)}) FROM STDIN"

        async def copy(driver: Any) -> None:
            async with driver.cursor() as cursor, cursor.copy(command) as stream:
                for row in rows:
                    await stream.write_row(row)

        self.awaited(copy)
