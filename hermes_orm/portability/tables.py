"""Which tables and columns are carried to another database, and their rows in portions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Select,
    Table,
    and_,
    bindparam,
    column,
    func,
    not_,
    select,
    tuple_,
)

from hermes_orm.dialects import Prepared
from hermes_orm.dialects.base import Row, Transaction
from hermes_orm.dialects.bulk import Bulk
from hermes_orm.dialects.transport import Transport
from hermes_orm.models import Base, SchemaVersion, StateMeta
from hermes_orm.models.meta import COPY_MARK
from hermes_orm.models.own import OWN_TABLES
from hermes_orm.portability.values import Conversion

PATIENCE: Final = 20.0
LARGE_BYTES: Final = 4_000_000
"""Size that a portion is meant to have."""
MOST_ROWS: Final = 2000
FIRST_ROWS: Final = 200

INDEX_KEYS: Final = (
    "fts_storage_version",
    "fts_optimize_available",
    "fts_rebuild_high_water",
    "fts_rebuild_progress",
    "fts_rebuild_deferral",
    "fts_stale",
    "fts_trigram_stale",
    "fts_cjk_stale",
    "fts_cjk_rebuild_high_water",
    "fts_cjk_rebuild_progress",
    "fts_tool_full_content_high_water",
    "search_tokenizer_version",
)
"""Settings that tell the state of search indexes."""
KEYS_LEFT: Final = (*INDEX_KEYS, "postgres_storage_version", "db_file_generation", COPY_MARK)
"""Settings that describe one database, not what is stored in it."""


def carried_tables() -> list[Table]:
    """Return the tables whose rows are no derived data, referred ones first."""
    derived = OWN_TABLES | {SchemaVersion.__tablename__}
    return [table for table in Base.metadata.sorted_tables if table.name not in derived]


@dataclass(frozen=True, eq=False)
class Carried:
    """A table and those of its columns that both databases have."""

    table: Table
    names: tuple[str, ...]
    _pages: dict[tuple[bool, bool], Prepared] = field(default_factory=dict)

    @cached_property
    def key(self) -> list[Column[Any]]:
        """The columns that identify a row."""
        return list(self.table.primary_key.columns)

    @cached_property
    def key_places(self) -> list[int]:
        """Where the key stands in a row."""
        return [self.names.index(each.name) for each in self.key]

    def conversion(self) -> Conversion:
        """Return what becomes of its values."""
        return Conversion([self.table.columns.get(name) for name in self.names])

    def _conditions(self) -> list[ColumnElement[bool]]:
        """A row without a key is no row; some settings belong to one database."""
        conditions: list[ColumnElement[bool]] = [each.is_not(None) for each in self.key]
        if self.table.name == StateMeta.__tablename__:
            conditions += [StateMeta.key != key for key in KEYS_LEFT]
        return conditions

    def _page(self, *, has_after: bool, has_until: bool) -> Prepared:
        """Return the statement of a portion: rows in (`after`, `until`] of the key's order."""
        found = self._pages.get((has_after, has_until))
        if found is None:
            columns: list[Any] = [self.table.columns.get(name, column(name)) for name in self.names]
            rows = select(*columns).select_from(self.table).where(*self._conditions())
            rows = rows.order_by(*self.key).limit(bindparam("limit", type_=BigInteger()))
            if has_after:
                rows = rows.where(tuple_(*self.key) > self._bound("after"))
            if has_until:
                rows = rows.where(tuple_(*self.key) <= self._bound("until"))
            found = self._pages[has_after, has_until] = Prepared(rows)
        return found

    def _bound(self, name: str) -> Any:
        binds = (bindparam(f"{name}_{n}", type_=each.type) for n, each in enumerate(self.key))
        return tuple_(*binds)

    async def portions(
        self, at: Transport, after: Sequence[Any] | None = None, until: Sequence[Any] | None = None
    ) -> AsyncIterator[Sequence[Row]]:
        """Yield the rows in the order of their key, a few megabytes at a time."""
        limit, bounds = FIRST_ROWS, _named("until", until)
        statement = self._page(has_after=after is not None, has_until=until is not None)
        while True:
            params = {**bounds, **_named("after", after), "limit": limit}
            rows = await reading(at, statement, params)
            if rows:
                yield rows
            if len(rows) < limit:
                return
            last = [rows[-1][place] for place in self.key_places]
            if last == after:
                raise ValueError(f"{self.table.name} has a key that is no text: repair its row")
            after = last
            statement = self._page(has_after=True, has_until=until is not None)
            size = sum(len(cell) for row in rows for cell in row if isinstance(cell, str))
            limit = max(1, min(MOST_ROWS, limit * LARGE_BYTES // max(1, size)))

    def last(self) -> Select[*tuple[Any, ...]]:
        """Return the query for the greatest key."""
        descending = [each.desc() for each in self.key]
        return select(*self.key).where(*self._conditions()).order_by(*descending).limit(1)

    def count(self) -> Select[int]:
        """Return the query for the number of rows that are carried."""
        return select(func.count()).select_from(self.table).where(*self._conditions())

    def count_without_key(self) -> Select[int]:
        """Return the query for the number of rows that lack their key."""
        has_key = and_(*(each.is_not(None) for each in self.key))
        return select(func.count()).select_from(self.table).where(not_(has_key))

    def count_values(self, name: str) -> Select[int]:
        """Return the query for the number of values in a column."""
        return select(func.count(column(name))).select_from(self.table)

    def is_carried(self) -> ColumnElement[bool]:
        """Return the condition on rows that are carried, or stand where such rows belong."""
        return and_(*self._conditions())


def _named(name: str, key: Sequence[Any] | None) -> dict[str, Any]:
    return {f"{name}_{n}": value for n, value in enumerate(key or ())}


async def reading(at: Transport, statement: Prepared, params: dict[str, Any]) -> Sequence[Row]:
    """Return the rows of a statement."""
    return await at.read(lambda tx: tx.all(statement, params), scope="statement", patience=PATIENCE)


def own_tables(tx: Transaction, bulk: Bulk) -> dict[str, tuple[str, ...]]:
    """Return the carried tables that a database has, with their columns."""
    found = {table.name: bulk.columns(tx, table) for table in carried_tables()}
    return {name: columns for name, columns in found.items() if columns}
