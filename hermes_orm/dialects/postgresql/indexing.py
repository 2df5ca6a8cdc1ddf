"""The search entries of messages: those that are missing are made here, in steps."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy import BigInteger, Connection, Select, bindparam, cast, column, func, select
from sqlalchemy.dialects import postgresql

from hermes_orm.dialects.base import Row, Transaction
from hermes_orm.dialects.indexing import (
    REBUILD,
    Indexing,
    Rebuild,
    clear_rebuild,
    defer_rebuild,
)
from hermes_orm.dialects.postgresql.transaction import PostgreSQLTransaction
from hermes_orm.dialects.postgresql.transcript import INDEXED, ArrayOf, entry
from hermes_orm.dialects.postgresql.upkeep import unhurried
from hermes_orm.dialects.prepared import Prepared
from hermes_orm.models import Message, MessageSearch, StateMeta
from hermes_orm.search.vector import TOKENIZER_VERSION

COMPLETED_AT_ONCE: Final = 500
GIN_INDEX: Final = "idx_message_search_vec"
UNFINISHED: Final = (
    "SELECT indexrelid::regclass::text FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid "
    f"WHERE indrelid = 'message_search'::regclass AND relname ~ '^{GIN_INDEX}_cc(new|old)'"
)
"""What a rebuild that was interrupted has left: each write goes into it, no search uses it."""
TOKENIZER_KEY: Final = "search_tokenizer_version"
"""Key of `state_meta`: which tokenizer made the entries; version 1 where it is missing."""

logger = logging.getLogger(__name__)


def _missing() -> Select[*tuple[Any, ...]]:
    texts = (Message.content, Message.tool_name, Message.tool_calls)
    return (
        select(Message.id, Message.role, *texts)
        .outerjoin(MessageSearch, MessageSearch.message_id == Message.id)
        .where(
            MessageSearch.message_id.is_(None),
            Message.id > bindparam("after_id", type_=BigInteger),
            Message.id <= bindparam("last_id", type_=BigInteger),
        )
        .order_by(Message.id)
        .limit(COMPLETED_AT_ONCE)
        # A text that changes meanwhile would change without its entry.
        .with_for_update(of=Message)
    )


def _entries() -> postgresql.Insert:
    types = {"message_id": BigInteger(), **INDEXED}
    arrays = [cast(bindparam(name), ArrayOf(of)) for name, of in types.items()]
    rows = func.unnest(*arrays).table_valued(*(column(name, of) for name, of in types.items()))
    row = rows.render_derived("row")
    values = [cast(row.c.vec, MessageSearch.vec.type) if n == "vec" else row.c[n] for n in types]
    return (
        postgresql.insert(MessageSearch)
        .from_select(list(types), select(*values))
        .on_conflict_do_nothing()
    )


MISSING: Final = Prepared(_missing, modifies=True)
ENTRIES: Final = Prepared(_entries)
LACKING: Final = Prepared(
    select(Message.id)
    .outerjoin(MessageSearch, MessageSearch.message_id == Message.id)
    .where(MessageSearch.message_id.is_(None))
    .limit(1)
)


TOKENIZER: Final = Prepared(select(StateMeta.value).where(StateMeta.key == TOKENIZER_KEY))


def _columns(rows: Sequence[Row]) -> dict[str, list[Any]]:
    """The entries of messages, as a list per column."""
    entries: list[Mapping[str, Any]] = []
    for row_id, role, *texts in rows:
        row = dict(zip(("content", "tool_name", "tool_calls"), texts, strict=True))
        entries.append({"message_id": row_id, **entry({"role": role, **row})})
    return {name: [row[name] for row in entries] for name in ("message_id", *INDEXED)}


def is_valid(connection: Connection) -> bool:
    """Whether the GIN index exists and is complete."""
    found = connection.exec_driver_sql(
        f"SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass('{GIN_INDEX}')"
    )
    return bool(found.scalar())


def _rebuild_index(tx: PostgreSQLTransaction) -> None:
    connection = tx.connection
    for name in connection.exec_driver_sql(UNFINISHED).scalars().all():
        tx.command(f"DROP INDEX CONCURRENTLY IF EXISTS {name}")
    if connection.exec_driver_sql(f"SELECT to_regclass('{GIN_INDEX}')").scalar() is None:
        tx.command(f"CREATE INDEX CONCURRENTLY {GIN_INDEX} ON message_search USING gin (vec)")
    else:
        tx.command(f"REINDEX INDEX CONCURRENTLY {GIN_INDEX}")


class PostgreSQLIndexing(Indexing):
    """One GIN index over the entries, which hold CJK pairs, too."""

    stays_settled = True  # every writer makes entries, only a migration can leave some out

    def fill(self, tx: Transaction, rebuild: Rebuild, after_id: int, last_id: int) -> None:
        """Make the missing entries of a range of ids."""
        self._make_entries(tx, after_id, last_id)

    def complete(self, tx: Transaction, rebuild: Rebuild, high_water: int) -> bool:
        """Make missing entries, wherever they are; False when there may be more."""
        return self._make_entries(tx, 0, 2**63 - 1) < COMPLETED_AT_ONCE

    def _make_entries(self, tx: Transaction, after_id: int, last_id: int) -> int:
        assert isinstance(tx, PostgreSQLTransaction)
        rows = tx.all(MISSING, {"after_id": after_id, "last_id": last_id})
        if rows:
            # Tokens of many messages take long: other tasks go on meanwhile.
            columns = tx.awaited(lambda driver: asyncio.to_thread(_columns, rows))
            tx.run(ENTRIES, columns)
        return len(rows)

    def optimize(self, tx: Transaction) -> int:
        """Merge what recent messages added into the index, and renew what the planner knows."""
        connection = tx.connection
        if is_valid(connection):
            connection.execute(select(func.gin_clean_pending_list(GIN_INDEX)))
        connection.exec_driver_sql("ANALYZE message_search")
        return 1

    def rebuild(self, tx: Transaction) -> int:
        """Build the index anew without holding up anybody."""
        with unhurried(tx) as own:
            _rebuild_index(own)
        if not self.is_improvable(tx):
            clear_rebuild(tx.connection, REBUILD)
        return 1

    def is_improvable(self, tx: Transaction) -> bool:
        """Whether messages lack an entry, or have one of another tokenizer."""
        return self.is_outdated(tx) or tx.first(LACKING) is not None

    def is_outdated(self, tx: Transaction) -> bool:
        """Whether the entries were made by another tokenizer."""
        return (tx.scalar(TOKENIZER) or "1") != str(TOKENIZER_VERSION)

    def renew(self, tx: Transaction) -> None:
        """Throw away the entries of another tokenizer; steps make them anew."""
        connection = tx.connection
        connection.exec_driver_sql("LOCK TABLE message_search IN ACCESS EXCLUSIVE MODE")
        if self.is_outdated(tx):  # nobody was faster
            connection.exec_driver_sql("TRUNCATE message_search")
            defer_rebuild(connection)
            values = {"key": TOKENIZER_KEY, "value": str(TOKENIZER_VERSION)}
            version = postgresql.insert(StateMeta).values(values)
            connection.execute(version.on_conflict_do_update(index_elements=["key"], set_=values))
            self.is_settled = False

    def reshape(self, tx: Transaction) -> bool:
        """See that messages without an entry, or with one of another tokenizer, get one."""
        if self.is_outdated(tx):
            self.renew(tx)
        if self.is_improvable(tx) and not tx.connection.scalar(
            select(StateMeta.key).where(StateMeta.key == REBUILD.high_water)
        ):
            defer_rebuild(tx.connection)
            self.is_settled = False
        return True

    def unsettled(self, tx: Transaction) -> str | None:
        """Return the reason why messages still lack an entry; None when none does."""
        return "backfill_incomplete" if self.is_improvable(tx) else None

    def settle(self, tx: Transaction) -> None:
        """Nothing is recorded: messages without an entry are looked for."""
