"""Copying a database to another one of either kind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from sqlalchemy import Select, bindparam, delete, select

from hermes_orm.config import Settings, load_settings
from hermes_orm.database import Database
from hermes_orm.dialects import Prepared, make_dialect, make_transport
from hermes_orm.dialects.base import Transaction, Work
from hermes_orm.dialects.bulk import Bulk, loading_transport, make_bulk
from hermes_orm.dialects.transport import HeldTransaction, Transport
from hermes_orm.dialects.uids import UID_MARK
from hermes_orm.errors import CopyError
from hermes_orm.home import hermes_home
from hermes_orm.location import Location, SqliteLocation, locate
from hermes_orm.models import StateMeta
from hermes_orm.models.meta import COPY_MARK
from hermes_orm.models.own import OWN_TABLES
from hermes_orm.portability.hashing import Digest
from hermes_orm.portability.tables import (
    KEYS_LEFT,
    PATIENCE,
    Carried,
    carried_tables,
    own_tables,
)
from hermes_orm.repositories.meta import GET_META, SET_META
from hermes_orm.repositories.search.indexing import IndexingRepository
from hermes_orm.services.indexing import fts_rebuild_step

T = TypeVar("T")
Progress = Callable[[str, int, int], object]
"""Is told what is being done, how many rows are done, and how many there are."""

KEYS_OF_NEW: Final = frozenset({"store_instance_id", "store_created_at_utc", UID_MARK})
"""Settings that a database has from its creation."""
UNMARK: Final = Prepared(delete(StateMeta).where(StateMeta.key == bindparam("key")))


@dataclass
class TableReport:
    """What was copied of a table, verified on both sides."""

    rows: int
    sha256: str


@dataclass
class CopyReport:
    """What a copy did; the rows of all tables are equal."""

    source: str
    target: str
    tables: dict[str, TableReport] = field(default_factory=dict)
    resumed: bool = False
    """Whether an interrupted copy was completed."""
    converted: dict[str, int] = field(default_factory=dict)
    """Values that the other database cannot hold, by column: the nearest one is stored."""
    left_out: list[str] = field(default_factory=list)
    """Tables and columns of the source that are no part of the schema, and rows without a key."""
    dangling: dict[str, int] = field(default_factory=dict)
    """Rows that refer to nothing, in the source as in the copy, by column."""


async def copy_database(
    source: str | Path | Location,
    target: str | Path | Location,
    *,
    progress: Progress | None = None,
) -> CopyReport:
    """Copy all tables of a store, as of one moment, to an empty database or a new file; verify it.

    Row ids, counters and identity are kept. What is derived (search index, recency) is made anew at
    the target. An interrupted copy is completed by calling this again: what is there by then is
    compared, and copied anew unless it is still the source's. Raises CopyError, with the target
    as it was, when it holds anything else, and SchemaError when a schema is not the newest.
    """
    origin, copy = locate(source), locate(target)
    _check(origin, copy)
    tell = progress or (lambda what, done, total: None)
    settings = load_settings(hermes_home())
    report = CopyReport(str(origin), str(copy))
    async with AsyncExitStack() as reading:
        held = await reading.enter_async_context(_source(origin, settings))
        async with _target(copy, settings) as loading:
            run = _Copy(held, make_bulk(origin), loading, make_bulk(copy), tell)
            last_id = await run.copy(report, _name(origin))
            await reading.aclose()  # a SQLite file without WAL takes writes again
            await run.complete(report, last_id)
    await fill_index(copy, tell)
    return report


def _check(origin: Location, copy: Location) -> None:
    for location in (origin, copy):
        if isinstance(location, SqliteLocation) and location.is_memory:
            raise ValueError("a database in memory can't be copied: give a file or a URL")
    if _name(origin) == _name(copy):
        raise ValueError("source and target are the same database: name another target")
    if isinstance(origin, SqliteLocation) and not origin.path.exists():
        raise FileNotFoundError(f"{origin} does not exist: name the database to be copied")


def _name(location: Location) -> str:
    return str(location.path.resolve()) if isinstance(location, SqliteLocation) else str(location)


@asynccontextmanager
async def _source(location: Location, settings: Settings) -> AsyncIterator[HeldTransaction]:
    """Yield one moment of a database."""
    dialect = make_dialect(location)
    transport = make_transport(location, settings, dialect, read_only=True)
    async with opened(transport):
        held = await transport.snapshot()
        try:
            yield held
        finally:
            await held.end(commits=False)


@asynccontextmanager
async def _target(location: Location, settings: Settings) -> AsyncIterator[Transport]:
    transport = loading_transport(location, settings, make_dialect(location))
    async with opened(transport):
        yield transport


@asynccontextmanager
async def opened(transport: Transport) -> AsyncIterator[None]:
    """Have a transport open within the block."""
    await transport.open(asyncio.get_running_loop().time() + PATIENCE)
    try:
        yield
    finally:
        await transport.close()


class _Copy:
    """One run from a moment of the source to the target."""

    def __init__(
        self, source: Transport, source_bulk: Bulk, target: Transport, bulk: Bulk, tell: Progress
    ) -> None:
        self._source = source
        self._source_bulk = source_bulk
        self._target = target
        self._bulk = bulk
        self._tell = tell
        self._marker = target.dialect.content_marker
        self._done = self._total = 0
        self._tables: list[Carried] = []

    async def copy(self, report: CopyReport, mark: str) -> int:
        """Claim the target and copy all tables; return the greatest id that a message ever had."""
        tables = await self._common(report)
        report.resumed = await self._write(partial(self._claim, tables=tables, mark=mark))
        for each in tables:
            digest = await self._copy(each, report)
            report.tables[each.table.name] = TableReport(digest.rows, digest.hex)
        self._tables = tables
        return await self._read(self._source_bulk.last_id)

    async def complete(self, report: CopyReport, last_id: int) -> None:
        """Verify the target, which has to be like the source, and make what is derived."""
        await self._verify(report)
        self._tell("references and recency", self._done, self._total)
        report.dangling = await self._write(partial(self._resume, last_id=last_id))

    async def _read(self, work: Work[T]) -> T:
        return await self._source.read(work, scope="snapshot", patience=PATIENCE)

    async def _write(self, work: Work[T]) -> T:
        return await self._target.write(work, scope="transaction", patience=PATIENCE, alone=True)

    async def _common(self, report: CopyReport) -> list[Carried]:
        """Return the tables of the source; the target gets those that are made on demand."""
        found = await self._read(lambda tx: own_tables(tx, self._source_bulk))
        tables = [table for table in carried_tables() if table.name in found]

        def establish(tx: Transaction) -> dict[str, tuple[str, ...]]:
            there = own_tables(tx, self._bulk)
            for table in (table for table in tables if table.name not in there):
                tx.dialect.on_demand.establish(tx, table)
            return own_tables(tx, self._bulk)

        there = await self._write(establish)
        carried = [
            Carried(table, tuple(n for n in found[table.name] if n in there[table.name]))
            for table in tables
        ]
        await self._list_left_out(report, found, carried)
        return carried

    async def _list_left_out(
        self, report: CopyReport, found: dict[str, tuple[str, ...]], carried: list[Carried]
    ) -> None:
        known = await self._write(self._bulk.tables) | OWN_TABLES | found.keys()
        report.left_out += sorted(await self._read(self._source_bulk.tables) - known)
        for each in carried:
            name = each.table.name
            if lost := await self._read(partial(_number, query=each.count_without_key())):
                report.left_out.append(f"{name}: {lost} rows without a key")
            for column in (column for column in found[name] if column not in each.names):
                query = each.count_values(column)
                if values := await self._read(partial(_number, query=query)):
                    report.left_out.append(f"{name}.{column}: {values} values")
            self._total += await self._read(partial(_number, query=each.count()))

    def _claim(self, tx: Transaction, tables: list[Carried], mark: str) -> bool:
        """Refuse a target that is in use; return whether it is a copy that was begun."""
        begun = tx.scalar(GET_META, {"key": COPY_MARK})
        if begun is None:
            _refuse_rows(tx, tables)
            tx.run(SET_META, {"key": COPY_MARK, "value": mark})
            tx.connection.execute(delete(StateMeta).where(StateMeta.key.not_in(KEYS_LEFT)))
        elif begun != mark:
            raise CopyError(
                f"the target is an unfinished copy of {begun}: complete that, or empty the target"
            )
        self._bulk.suspend(tx)
        return begun is not None

    async def _copy(self, each: Carried, report: CopyReport) -> Digest:
        """Copy the rows that the target lacks; return the digest of all rows of the source."""
        name, conversion = each.table.name, each.conversion()
        digest, after = await self._kept(each)
        self._advance(f"copying {name}", digest.rows)
        async for rows in each.portions(self._source, after):
            portable = conversion.portable(rows)
            digest.add(portable)
            stored = conversion.stored(self._marker, portable)
            load = partial(self._bulk.load, table=each.table, names=each.names, rows=stored)
            await self._write(load)
            self._advance(f"copying {name}", len(rows))
        for column, count in conversion.changed.items():
            report.converted[column] = report.converted.get(column, 0) + count
        return digest

    async def _kept(self, each: Carried) -> tuple[Digest, list[object] | None]:
        """Return the digest and the last key of what an interrupted copy has left.

        What is not as in the source by now is deleted.
        """
        row = await self._write(lambda tx: tx.connection.execute(each.last()).first())
        if row is None:
            return Digest(), None
        last = list(row)
        there, here = await self._digest(self._target, each), Digest()
        conversion = each.conversion()
        async for rows in each.portions(self._source, until=last):
            here.add(conversion.portable(rows))
        if here == there:
            return here, last
        await self._write(partial(_empty, each=each))
        return Digest(), None

    async def _digest(self, at: Transport, each: Carried) -> Digest:
        digest, conversion = Digest(), each.conversion()
        async for rows in each.portions(at):
            digest.add(conversion.portable(rows))
        return digest

    async def _verify(self, report: CopyReport) -> None:
        self._done = 0
        for each in self._tables:
            name = each.table.name
            found, wanted = await self._digest(self._target, each), report.tables[name]
            if (found.rows, found.hex) != (wanted.rows, wanted.sha256):
                raise CopyError(
                    f"{name} differs after the copy: {wanted.rows} rows of the source, "
                    f"{found.rows} of the target; has somebody written to the target? "
                    "copy again to compare and repair it"
                )
            self._advance(f"verifying {name}", found.rows)

    def _resume(self, tx: Transaction, last_id: int) -> dict[str, int]:
        self._bulk.set_last_id(tx, last_id)
        return self._bulk.resume(tx)

    def _advance(self, what: str, rows: int) -> None:
        self._done += rows
        self._tell(what, self._done, self._total)


def _number(tx: Transaction, query: Select[int]) -> int:
    return tx.connection.scalar(query) or 0


def _empty(tx: Transaction, each: Carried) -> None:
    tx.connection.execute(delete(each.table).where(each.is_carried()))


def _refuse_rows(tx: Transaction, tables: list[Carried]) -> None:
    for each in tables:
        if each.table.name == StateMeta.__tablename__:
            expected = (*KEYS_LEFT, *KEYS_OF_NEW)
            query = select(StateMeta.key).where(StateMeta.key.not_in(expected)).limit(1)
        else:
            query = each.last()
        if tx.connection.execute(query).first() is not None:
            raise CopyError(
                f"the target has rows in {each.table.name}: copy to an empty database or a new file"
            )


async def fill_index(location: Location, tell: Progress) -> None:
    """Fill the search index of a copy, then take its mark away: it is complete."""
    database = Database(location, dialect=make_dialect(location))
    try:
        while await fts_rebuild_step(database):
            status = await database.read(lambda tx: IndexingRepository(tx).status())
            if status is not None:
                tell("indexing messages", status["indexed"], status["total"])
        await database.write(lambda tx: tx.run(UNMARK, {"key": COPY_MARK}))
    finally:
        await database.close()
