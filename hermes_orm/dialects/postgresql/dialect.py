"""PostgreSQL as one set of parts."""

from __future__ import annotations

from hermes_orm.dialects.base import Dialect
from hermes_orm.dialects.postgresql import errors
from hermes_orm.dialects.postgresql.accounting import PostgreSQLAccounting
from hermes_orm.dialects.postgresql.delegations import DELEGATIONS
from hermes_orm.dialects.postgresql.indexing import PostgreSQLIndexing
from hermes_orm.dialects.postgresql.on_demand import PostgreSQLOnDemand
from hermes_orm.dialects.postgresql.search import PostgreSQLSearch
from hermes_orm.dialects.postgresql.transcript import PostgreSQLTranscript
from hermes_orm.dialects.postgresql.upkeep import PostgreSQLUpkeep


class PostgreSQLDialect(Dialect):
    """The server: many workers, many hosts."""

    name = "postgresql"
    content_marker = "\x01json:"
    is_on_one_host = False
    lends_connections = True

    def __init__(self) -> None:
        self.transcript = PostgreSQLTranscript()
        self.accounting = PostgreSQLAccounting()
        self.search = PostgreSQLSearch()
        self.indexing = PostgreSQLIndexing()
        self.upkeep = PostgreSQLUpkeep()
        self.on_demand = PostgreSQLOnDemand()
        self.delegations = DELEGATIONS

    def translate(self, error: BaseException) -> BaseException:
        """Return a driver's error as SQLAlchemy's class, with the server's primary message only."""
        return errors.translate(error)

    def is_busy(self, error: BaseException) -> bool:
        """Whether a lock, a deadlock or a serialization failure was in the way."""
        return errors.sqlstate_of(error) in errors.BUSY
