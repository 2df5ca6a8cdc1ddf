"""The rows of a damaged file on their way into a new database."""

from __future__ import annotations

import ast
import asyncio
import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial as bound
from typing import Any, Final, TypeVar

from sqlalchemy import DefaultClause, Table, delete, func, insert, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.sql.elements import TextClause

from hermes_orm.dialects.base import Transaction, Work
from hermes_orm.dialects.bulk import Bulk
from hermes_orm.dialects.sqlite.damaged import DamagedFile, errors
from hermes_orm.dialects.transport import Transport
from hermes_orm.dialects.uids import UID_MARK
from hermes_orm.models import Message, SessionTurnLease, StateMeta
from hermes_orm.portability.orphans import mend_references
from hermes_orm.portability.salvage import Salvage
from hermes_orm.portability.tables import KEYS_LEFT, PATIENCE, carried_tables

T = TypeVar("T")
Rows = list[tuple[Any, ...]]
Progress = Callable[[str, int, int], object]

LEFT: Final = frozenset({SessionTurnLease.__tablename__})
"""Tables that mean nothing in another file."""
META_LEFT: Final = frozenset({*KEYS_LEFT, "telegram_dm_topic_schema_version"})
REFUSED: Final = (IntegrityError, sqlite3.IntegrityError)
"""Errors of rows that the schema does not allow."""


class Reloading:
    """One run; `rejected` and `cleaned` count what can't be stored as it is."""

    def __init__(
        self,
        file: DamagedFile,
        target: Transport,
        bulk: Bulk,
        chunk_rows: int,
        tell: Progress,
    ) -> None:
        self._file = file
        self._target = target
        self._bulk = bulk
        self._chunk_rows = chunk_rows
        self._tell = tell
        self._cleaned: Counter[str] = Counter()

    async def run(self, *, partial: bool) -> dict[str, Any]:
        """Load all tables, mend references if `partial`, and make what is derived."""
        present = await asyncio.to_thread(self._file.tables)
        fresh = await self._write(self._begin)
        copied: dict[str, Any] = {}
        for table in (table for table in carried_tables() if table.name not in LEFT):
            if table.name in present:
                copied[table.name] = await self._table(table, partial)
            else:
                copied[table.name] = {"status": "missing", "rows": 0}
        if self._file.undecodable:
            self._cleaned["texts that were no UTF-8"] = self._file.undecodable
        orphans = await self._write(mend_references) if partial else {}
        last_id = await asyncio.to_thread(self._file.last_message_id)
        await self._write(bound(self._finish, fresh=fresh, last_id=last_id or 0))
        return {
            "copy": copied,
            "orphan_cleanup": orphans,
            "semantic_cleanup": dict(self._cleaned),
            "derived_metadata": ["recency of sessions", "search index"],
        }

    async def _write(self, work: Work[T]) -> T:
        return await self._target.write(work, scope="transaction", patience=PATIENCE, alone=True)

    def _begin(self, tx: Transaction) -> dict[str, str | None]:
        """Make room for the settings of the source; return those of the new database."""
        self._bulk.suspend(tx)
        own = StateMeta.key.not_in(KEYS_LEFT)
        fresh = tx.connection.execute(select(StateMeta.key, StateMeta.value).where(own))
        settings = {row[0]: row[1] for row in fresh}
        tx.connection.execute(delete(StateMeta).where(own))
        return settings

    async def _table(self, table: Table, partial: bool) -> dict[str, Any]:
        """Load one table; return how that went."""
        report: dict[str, Any] = {"status": "complete", "rows": 0}
        try:
            found = await asyncio.to_thread(self._file.columns, table.name)
            names = await self._write(bound(self._common, table=table, found=found))
            salvage = Salvage(self._file, table.name, names, self._chunk_rows, partial)
            portions = salvage.portions()
            total = await asyncio.to_thread(self._file.count, table.name) or 0
            while (rows := await asyncio.to_thread(next, portions, None)) is not None:
                loaded, rejected = await self._load(table, names, rows)
                report["rows"] += loaded
                if rejected:
                    report.setdefault("rejected_row_ids", []).extend(rejected)
                self._tell(table.name, report["rows"], total)
        except errors() as error:
            return {**report, "status": "failed", "error": str(error)}
        if salvage.skipped:
            report["skipped_row_ids"] = salvage.skipped
        if salvage.skipped or "rejected_row_ids" in report:
            report["status"] = "partial"
        return report

    def _common(self, tx: Transaction, table: Table, found: Sequence[str]) -> list[str]:
        if not self._bulk.columns(tx, table):
            tx.dialect.on_demand.establish(tx, table)
        there = self._bulk.columns(tx, table)
        return [name for name in found if name in there]

    async def _load(self, table: Table, names: list[str], rows: Rows) -> tuple[int, list[int]]:
        """Store rows; return how many, and the row ids of those that the schema does not allow."""
        usable, rejected = [], []
        for row in rows:
            stored = self._as_stored(table, names, row)
            if stored is None:
                rejected.append(row[0])
            elif stored:
                usable.append(stored)
        is_id = len(names) > 0 and _is_row_id(table)
        columns = names if is_id else ["rowid", *names]
        values = [row[1:] if is_id else row for row in usable]
        try:
            await self._write(bound(self._bulk.load, table=table, names=columns, rows=values))
        except REFUSED:
            for position in range(len(values)):
                one = values[position : position + 1]
                try:
                    await self._write(bound(self._bulk.load, table=table, names=columns, rows=one))
                except REFUSED:
                    rejected.append(usable[position][0])
        return len(rows) - len(rejected), rejected

    def _as_stored(
        self, table: Table, names: list[str], row: tuple[Any, ...]
    ) -> tuple[Any, ...] | None:
        """Return a row as it is stored; an empty one is left out, None is impossible."""
        if table.name == StateMeta.__tablename__ and row[1 + names.index("key")] in META_LEFT:
            return ()
        cells = list(row)
        for place, name in enumerate(names, 1):
            column = table.columns.get(name)
            if column is None:
                continue
            if cells[place] is None and not column.nullable:
                cells[place] = _default(column.server_default)
                if cells[place] is None:
                    return None
            if column.primary_key and cells[place] is None:
                return None
            if column.name == "model_config" and not _is_json(cells[place]):
                cells[place] = "{}"
                self._cleaned["sessions.model_config that was no JSON"] += 1
        return tuple(cells)

    def _finish(self, tx: Transaction, fresh: dict[str, str | None], last_id: int) -> None:
        connection = tx.connection
        present = set(connection.scalars(select(StateMeta.key)))
        lacks_uid = select(func.count()).select_from(Message).where(Message.message_uid.is_(None))
        if connection.scalar(lacks_uid):
            fresh.pop(UID_MARK, None)
        rows = [{"key": key, "value": fresh[key]} for key in fresh if key not in present]
        if rows:
            connection.execute(insert(StateMeta), rows)
        self._bulk.set_last_id(tx, max(last_id, self._bulk.last_id(tx)))
        self._bulk.resume(tx)


def _is_row_id(table: Table) -> bool:
    key = list(table.primary_key.columns)
    return len(key) == 1 and key[0].type.python_type is int


def _default(clause: Any) -> Any:
    """Return the constant that a column has by default; None when there is none."""
    if isinstance(clause, DefaultClause) and isinstance(clause.arg, TextClause):
        return ast.literal_eval(clause.arg.text)
    return None


def _is_json(text: Any) -> bool:
    if text is None:
        return True
    try:
        json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return False
    return True
