"""What the databases do differently, as abstract parts, and what a unit of work sees."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, Literal, TypeVar

from sqlalchemy import ColumnElement, Connection, FromClause, Select

from hermes_orm.dialects.accounting import Kind
from hermes_orm.dialects.delegations import Delegations
from hermes_orm.dialects.indexing import Indexing
from hermes_orm.dialects.prepared import Params, Prepared
from hermes_orm.dialects.search import Candidates, SearchIndex
from hermes_orm.dialects.transcript import TurnLease
from hermes_orm.dialects.upkeep import Upkeep
from hermes_orm.search.query import Node

T = TypeVar("T")
Row = Sequence[Any]
Scope = Literal["statement", "snapshot", "transaction", "maintenance"]
"""`maintenance`: a unit that no transaction can hold; each of its commands commits by itself."""
NOTHING: Params = {}
ALL_ROWS = 2**63 - 1

DEFAULT_PATIENCE = 20.0
"""Seconds that a call may spend waiting for other writers."""
TRANSCRIPT_PATIENCE = 60.0
ACTIVITY_PATIENCE = 0.5


class Transaction(ABC):
    """What a unit of work may do: run prepared statements inside one transaction."""

    __slots__ = ("dialect",)

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect

    @property
    @abstractmethod
    def connection(self) -> Connection:
        """The SQLAlchemy connection of this transaction, for statements that are not prepared."""

    @abstractmethod
    def all(self, statement: Prepared, params: Params = NOTHING) -> Sequence[Row]:
        """Return every row."""

    @abstractmethod
    def first(self, statement: Prepared, params: Params = NOTHING) -> Row | None:
        """Return the first row, or None."""

    @abstractmethod
    def each(self, statement: Prepared, params: Params) -> Iterator[Row]:
        """Yield the rows of a SELECT as of one moment, without holding all of them.

        The statement orders by its first column, a row id, and has the parameters `from_id`, which
        the ids come after, `offset` and `limit`; `ALL_ROWS` stands for no limit.
        """

    @abstractmethod
    def run(self, statement: Prepared, params: Params = NOTHING) -> int:
        """Run a statement that returns no rows; return how many rows it changed."""

    def run_together(self, statements: tuple[Prepared, ...], params: Params) -> None:
        """Run statements that change different rows, all with the same parameters."""
        for statement in statements:
            self.run(statement, params)

    @abstractmethod
    def run_many(self, statement: Prepared, rows: Sequence[Params]) -> None:
        """Run a statement once per parameter set, in order."""

    def scalar(self, statement: Prepared, params: Params = NOTHING) -> Any:
        """Return the first column of the first row, or None."""
        row = self.first(statement, params)
        return None if row is None else row[0]


Work = Callable[[Transaction], T]


class Transcript(ABC):
    """How message rows enter a transcript: guards, counters, identity and search row of each."""

    def indexed(self, row: Params) -> Params:
        """Return a row to append with what its search entry needs; done before the unit runs."""
        return row

    @abstractmethod
    def append(self, tx: Transaction, row: Params, lease: TurnLease | None) -> int | None:
        """Insert one live row and count it; return its id, or None when the session refuses it.

        `row` holds the columns of `messages`, `added_rows` and `added_calls`. It is refused, and
        nothing is changed, unless the lease is held and the session exists and is open.
        """

    @abstractmethod
    def extend(
        self, tx: Transaction, rows: Sequence[Params], total: Params, lease: TurnLease | None
    ) -> bool:
        """Insert `rows` in order and count them once; False when the session refuses them.

        `total` holds `session_id`, `added_rows` and `added_calls` of all rows.
        """

    @abstractmethod
    def fill(self, tx: Transaction, rows: Sequence[Params]) -> None:
        """Insert all rows of sessions that this transaction has made, in order.

        Each holds its `session_id`. Nothing is checked or counted: the sessions have the counts.
        """

    @abstractmethod
    def copy_tail(self, tx: Transaction, tail: Params) -> int:
        """Copy live rows of a session in order to the end of another or itself; return how many.

        `tail` holds `source_id`, `session_id` of the copies, `after_id` and `last_id`. Both
        sessions are locked; nothing is counted.
        """


class Accounting(ABC):
    """How a report of token usage is counted."""

    @abstractmethod
    def spend(self, tx: Transaction, report: Params, kind: Kind) -> None:
        """Count a report in its session, which is created if need be, and in its usage row."""


class Search(ABC):
    """Full-text search over messages: what the indexes find, and how they rank it.

    Implementations hold no state and equal each other, so that stores share statements.
    """

    exact: ClassVar[frozenset[SearchIndex]]
    """Indexes that find nothing but hits; what the other finds is to be checked by its texts."""

    @abstractmethod
    def route(self, index: SearchIndex) -> str:
        """Return the name of an index in the log."""

    @abstractmethod
    def parameters(self, index: SearchIndex, tree: Node) -> Params | None:
        """Return what `candidates` and `ranked` bind; None when the index cannot serve the tree."""

    @abstractmethod
    def candidates(self, index: SearchIndex | None, *, whole: bool = False) -> Candidates:
        """Return the messages that an index finds; without one, all messages.

        Their texts are cut to what an index holds, unless they are wanted `whole`.
        """

    @abstractmethod
    def ranked(
        self, rows: Select[int], shown: Sequence[ColumnElement[Any]]
    ) -> tuple[Select[Any], ...]:
        """Return selects of a page (`limit`, `offset`) of the word index, most relevant rows first.

        They are tried in order; one that yields nothing may have left it to the next.
        """

    def stale_keys(self, index: SearchIndex) -> tuple[str, ...]:
        """Return the keys of `state_meta` of which each says that an index is not to be asked."""
        return ()

    def undecided(self) -> ColumnElement[bool] | None:
        """Return the condition on messages whose texts SQL cannot read while they lack an entry.

        None where there are none.
        """
        return None

    def is_damage(self, error: Exception) -> bool:
        """Whether an error says that an index is damaged or missing, its table being intact."""
        return False


class OnDemand(ABC):
    """Tables outside the core schema, which a SQLite file has once somebody has needed them."""

    @abstractmethod
    def columns(self, tx: Transaction, table: FromClause) -> frozenset[str] | None:
        """Return the names of the columns that a table has; None when it does not exist."""

    @abstractmethod
    def establish(self, tx: Transaction, *tables: FromClause) -> bool:
        """Create the tables with their indexes, and add what an older form of them lacks.

        Rows that refer to nothing are left out when that takes a new table. Returns whether
        anything was missing.
        """


class Dialect(ABC):
    """One database: its name, its stored forms, and its parts."""

    name: str
    content_marker: str
    """Prefix that tells stored structured content from text."""
    is_on_one_host: bool
    """Whether everybody who uses a database runs on its host, where process ids mean the same."""
    lends_connections: bool
    """Whether a host can run SQL of its own on the store's connections."""
    transcript: Transcript
    accounting: Accounting
    search: Search
    indexing: Indexing
    upkeep: Upkeep
    on_demand: OnDemand
    delegations: Delegations

    @abstractmethod
    def translate(self, error: BaseException) -> BaseException:
        """Return the error that callers see for a driver's; others come back unchanged."""

    @abstractmethod
    def is_busy(self, error: BaseException) -> bool:
        """Whether waiting may help: a lock, a deadlock, a serialization failure."""
