"""SQLite as one set of parts."""

from __future__ import annotations

from hermes_orm.dialects.base import Dialect
from hermes_orm.dialects.sqlite import driver as sqlite_driver
from hermes_orm.dialects.sqlite.accounting import SQLiteAccounting
from hermes_orm.dialects.sqlite.delegations import DELEGATIONS
from hermes_orm.dialects.sqlite.indexing import SQLiteIndexing
from hermes_orm.dialects.sqlite.on_demand import SQLiteOnDemand
from hermes_orm.dialects.sqlite.search import SQLiteSearch
from hermes_orm.dialects.sqlite.transcript import SQLiteTranscript
from hermes_orm.dialects.sqlite.upkeep import SQLiteUpkeep


class SQLiteDialect(Dialect):
    """The embedded database: one file, one writer at a time."""

    name = "sqlite"
    content_marker = "\x00json:"
    is_on_one_host = True
    lends_connections = False

    def __init__(self) -> None:
        self.transcript = SQLiteTranscript()
        self.accounting = SQLiteAccounting()
        self.search = SQLiteSearch()
        self.upkeep = SQLiteUpkeep()
        self.on_demand = SQLiteOnDemand()
        self.delegations = DELEGATIONS
        self.indexing = SQLiteIndexing()

    def translate(self, error: BaseException) -> BaseException:
        """Return a driver's error as the `sqlite3` class of the same name."""
        return sqlite_driver.as_standard(error)

    def is_busy(self, error: BaseException) -> bool:
        """Whether another connection holds the lock that was needed."""
        return sqlite_driver.is_busy(error)
