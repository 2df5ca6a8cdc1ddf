"""A unit's view of a SQLite connection: prepared statements on the driver's cursor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import Connection, Engine, ExceptionContext, StaticPool, create_engine, event

from hermes_orm.dialects.base import NOTHING, Dialect, Row, Transaction
from hermes_orm.dialects.prepared import CompiledText, Params, Prepared
from hermes_orm.dialects.sqlite import driver as sqlite_driver
from hermes_orm.dialects.sqlite.files import Place
from hermes_orm.dialects.sqlite.undecodable import failures, is_undecodable, read_replacing

STEP = 100
"""Rows that are read from a cursor at a time."""


class HeldConnection:
    """A driver connection with the SQLAlchemy connection over it; lives and dies on its thread.

    Transactions are begun and ended here, by hand: a begin *event* that fails ("database is
    locked") would leave the SQLAlchemy connection without a transaction, and later statements in
    autocommit.
    """

    def __init__(self, driver: Any, dialect: Dialect) -> None:
        self.driver = driver
        self.dialect = dialect
        self._engine: Engine = create_engine(
            "sqlite+pysqlite://",
            creator=lambda: driver,
            poolclass=StaticPool,
            module=sqlite_driver.module(),
            hide_parameters=True,
        )
        self.sqlalchemy_dialect = self._engine.dialect
        self.connection: Connection = self._engine.connect()
        """Made before any transaction begins: SQLAlchemy ends its first connect with ROLLBACK."""
        self._is_query_only = False
        self.place: Place | None = None
        """Where the file of a writer stands; looked at before anything is committed."""
        self.repairs = 0
        """How often search indexes were repaired because a write had failed."""
        self.merges = 0
        """How often parts of search indexes were merged."""
        self._is_writing = False
        self._undone_by: BaseException | None = None
        event.listen(self._engine, "handle_error", self._note)
        event.listen(self._engine, "before_cursor_execute", lambda *_: self.check_intact())

    def forbid_changes(self) -> None:
        """Have SQLite refuse every change until `allow_changes`.

        Both expire all prepared statements of the connection: too dear for each read.
        """
        self._is_query_only = True
        self.driver.execute("PRAGMA query_only=1")

    def allow_changes(self) -> None:
        """Undo `forbid_changes`, if it was called."""
        if self._is_query_only:
            self.driver.execute("PRAGMA query_only=0")
            self._is_query_only = False

    def begin(self, statement: str) -> None:
        """Send `BEGIN` or `BEGIN IMMEDIATE`."""
        if self.place is not None and statement != "BEGIN":
            self.place.check()
        self.driver.execute(statement)
        self._is_writing = statement != "BEGIN"

    def check_intact(self) -> None:
        """Raise the error because of which SQLite itself has undone the transaction, if any did.

        A full disk can do that: whoever went on after such an error would do so in autocommit.
        """
        if self._undone_by is not None:
            raise self._undone_by

    def _note(self, context: ExceptionContext) -> None:
        if self._is_writing and not self.driver.in_transaction:
            self._undone_by = self._undone_by or context.original_exception

    def commit(self) -> None:
        """Commit what the units did; a busy database raises, and nothing is committed then.

        So does a file that was moved or deleted: what is written to it would be lost.
        """
        if self.place is not None:
            self.place.check_all()
        self.driver.commit()
        self._settle()

    def rollback(self) -> None:
        """Undo what the units did, if a transaction is open."""
        self.driver.rollback()
        self._settle()

    def _settle(self) -> None:
        self._is_writing, self._undone_by = False, None
        if self.connection.in_transaction():
            self.connection.rollback()  # its bookkeeping only: the driver has nothing open

    def dispose(self) -> None:
        """Let go of the SQLAlchemy side; the driver connection is closed by its thread."""
        self.connection.close()


class SQLiteTransaction(Transaction):
    """One unit on a held connection; useless once the unit has ended.

    A guarded one only reads, although the connection is the writer's: prepared statements that
    change something are refused here, and other statements by SQLite.
    """

    __slots__ = ("_driver", "_held", "_is_guarded", "_key")

    def __init__(self, held: HeldConnection, *, guarded: bool = False) -> None:
        super().__init__(held.dialect)
        self._held: HeldConnection | None = held
        self._driver = held.driver
        self._is_guarded = guarded
        self._key = held.sqlalchemy_dialect

    def end(self) -> None:
        """Refuse every later statement: outside a unit it would run in autocommit."""
        self._held = self._driver = None

    @property
    def connection(self) -> Connection:
        """The held SQLAlchemy connection."""
        if self._held is None:
            raise RuntimeError("this unit of work has ended: no statement can run on it any more")
        if self._is_guarded:
            self._held.forbid_changes()
        return self._held.connection

    def _compiled(self, statement: Prepared) -> CompiledText:
        if self._is_guarded and statement.modifies:
            readonly: Exception = sqlite_driver.module().OperationalError(
                "attempt to write a readonly database"
            )
            raise readonly
        return statement.compiled(self._key)

    def _execute(self, statement: Prepared, params: Params) -> Any:
        compiled = self._compiled(statement)
        if self._driver is None or not Prepared.on_driver:
            return self.connection.exec_driver_sql(compiled.text, compiled.values(params))
        return self._driver.execute(compiled.text, compiled.values(params))

    def all(self, statement: Prepared, params: Params = NOTHING) -> Sequence[Row]:
        """Return every row."""
        try:
            rows: Sequence[Row] = self._execute(statement, params).fetchall()
        except failures() as error:
            return self._replacing(error, statement, params)
        return rows

    def first(self, statement: Prepared, params: Params = NOTHING) -> Row | None:
        """Return the first row, or None."""
        try:
            cursor = self._execute(statement, params)
            row: Row | None = cursor.fetchone()
        except failures() as error:
            return next(iter(self._replacing(error, statement, params)), None)
        cursor.close()  # an open cursor would keep the statement, and its lock, alive
        return row

    def each(self, statement: Prepared, params: Params) -> Iterator[Row]:
        """Yield the rows of a SELECT from one cursor."""
        seen = 0
        try:
            cursor = self._execute(statement, params)
            while rows := cursor.fetchmany(STEP):
                yield from rows
                seen += len(rows)
        except failures() as error:
            left = {"offset": params["offset"] + seen, "limit": params["limit"] - seen}
            yield from self._replacing(error, statement, {**params, **left})

    def _replacing(self, error: Exception, statement: Prepared, params: Params) -> Sequence[Row]:
        """Read once more what failed because of text that is no UTF-8; raise any other error."""
        if statement.modifies or not is_undecodable(error):
            raise error
        assert self._held is not None

        def fetch() -> Sequence[Row]:
            rows: Sequence[Row] = self._execute(statement, params).fetchall()
            return rows

        return read_replacing(self._held.driver, fetch, statement, params)

    def run(self, statement: Prepared, params: Params = NOTHING) -> int:
        """Run a statement that returns no rows; return how many rows it changed."""
        changed = int(self._execute(statement, params).rowcount)
        if changed < 0:  # sqlite3 counts only what begins with INSERT, UPDATE, DELETE or REPLACE
            raise AssertionError("the driver counts no rows of a WITH statement: use RETURNING")
        return changed

    def run_many(self, statement: Prepared, rows: Sequence[Params]) -> None:
        """Run a statement once per parameter set, in order."""
        compiled = self._compiled(statement)
        values = [compiled.values(row) for row in rows]
        if self._driver is None or not Prepared.on_driver:
            if values:  # an empty list would be no parameters
                self.connection.exec_driver_sql(compiled.text, values)
        else:
            self._driver.executemany(compiled.text, values)
