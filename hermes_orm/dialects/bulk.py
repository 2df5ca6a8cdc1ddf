"""How a whole database is put into another: rows as they are, past triggers and references."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Table

from hermes_orm.config import Settings
from hermes_orm.dialects.base import Dialect, Row, Transaction
from hermes_orm.dialects.transport import Transport
from hermes_orm.home import hermes_home
from hermes_orm.location import Location, SqliteLocation


class Bulk(ABC):
    """What bulk work does differently on each database; statements of one unit."""

    @abstractmethod
    def columns(self, tx: Transaction, table: Table) -> tuple[str, ...]:
        """Return the names of the columns that a table really has; none when it does not exist."""

    @abstractmethod
    def tables(self, tx: Transaction) -> frozenset[str]:
        """Return the names of the tables, those of indexes and of the database itself left out."""

    @abstractmethod
    def suspend(self, tx: Transaction) -> None:
        """Drop what would change, refuse or index rows that are loaded. May be repeated."""

    @abstractmethod
    def load(
        self, tx: Transaction, table: Table, names: Sequence[str], rows: Sequence[Row]
    ) -> None:
        """Insert rows as they are; `names` are the columns of their values."""

    @abstractmethod
    def resume(self, tx: Transaction) -> dict[str, int]:
        """Create what `suspend` dropped, compute what is derived; the search index comes later.

        Return how many rows refer to nothing, by the column; they are left as they are.
        """

    @abstractmethod
    def last_id(self, tx: Transaction) -> int:
        """Return the greatest id that a message ever had."""

    @abstractmethod
    def set_last_id(self, tx: Transaction, last_id: int) -> None:
        """Have the next message get an id beyond `last_id`."""


def make_bulk(location: Location) -> Bulk:
    """Return the bulk work of the location's database."""
    if isinstance(location, SqliteLocation):
        from hermes_orm.dialects.sqlite.bulk import SQLiteBulk

        return SQLiteBulk()
    from hermes_orm.dialects.postgresql.bulk import PostgreSQLBulk

    return PostgreSQLBulk()


def loading_transport(location: Location, settings: Settings, dialect: Dialect) -> Transport:
    """Return a transport for the database that is loaded: opening it repairs nothing."""
    if isinstance(location, SqliteLocation):
        from hermes_orm.dialects.sqlite.bulk import LoadingTransport

        arguments: Any = (str(location), settings.sqlite, dialect)
        return LoadingTransport(*arguments, read_only=False, home=hermes_home())
    from hermes_orm.dialects import make_transport

    return make_transport(location, settings, dialect, read_only=False)
