"""The FTS5 indexes of a file, filled in steps and tidied."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache
from typing import Final

from sqlalchemy import BigInteger, Connection, bindparam, column, exists, insert, select, table

from hermes_orm.dialects.base import Transaction
from hermes_orm.dialects.indexing import CJK_REBUILD, REBUILD, Indexing, Rebuild, clear_rebuild
from hermes_orm.dialects.prepared import Prepared
from hermes_orm.dialects.search import SearchIndex
from hermes_orm.dialects.sqlite import search_settings
from hermes_orm.dialects.sqlite import search_upkeep as upkeep
from hermes_orm.dialects.sqlite.driver import as_standard, is_busy
from hermes_orm.dialects.sqlite.search_ddl import CJK, SUBSTRINGS, WORDS, FtsIndex
from hermes_orm.dialects.sqlite.search_settings import SearchSettings

INDEXES: Final = {
    SearchIndex.WORDS: WORDS,
    SearchIndex.SUBSTRINGS: SUBSTRINGS,
    SearchIndex.PAIRS: CJK,
}
SWEPT_IDS: Final = 1000
"""Around the end of a rebuild: there rows were written while it began."""

logger = logging.getLogger("hermes_orm.sqlite")


@cache
def fill(index: FtsIndex) -> Prepared:
    """Return the statement that indexes the messages of a range of ids that are not indexed."""
    names = index.columns
    target = table(index.name, column("rowid"), *map(column, names))
    source = table(index.view, column("id"), *map(column, names))
    indexed = table(f"{index.name}_docsize", column("id"))
    rows = select(source.c.id, *(source.c[name] for name in names)).where(
        source.c.id > bindparam("after_id", type_=BigInteger()),
        source.c.id <= bindparam("last_id", type_=BigInteger()),
        ~exists(select(indexed.c.id).where(indexed.c.id == source.c.id)),
    )
    return Prepared(insert(target).from_select(["rowid", *names], rows))


class SQLiteIndexing(Indexing):
    """The word, trigram and, where its tokenizer is loaded, CJK index."""

    def __init__(self, wanted: SearchSettings | None = None) -> None:
        wanted = wanted or SearchSettings()
        self.has_cjk, self.defers = wanted.has_cjk, wanted.defers

    def has(self, tx: Transaction, rebuild: Rebuild) -> bool:
        """Whether the tables exist and can be written."""
        return bool(self._indexes(tx.connection, rebuild))

    def fill(self, tx: Transaction, rebuild: Rebuild, after_id: int, last_id: int) -> None:
        """Index the messages of a range of ids that are not indexed yet."""
        for index in self._indexes(tx.connection, rebuild):
            tx.run(fill(index), {"after_id": after_id, "last_id": last_id})

    def complete(self, tx: Transaction, rebuild: Rebuild, high_water: int) -> bool:
        """Index what was written while the rebuild began, and merge what its steps have made."""
        self.fill(tx, rebuild, high_water - SWEPT_IDS, high_water + SWEPT_IDS)
        connection = tx.connection
        for index in self._indexes(connection, rebuild):
            upkeep.merge(connection, index, is_first=True)
        return True

    def optimize(self, tx: Transaction) -> int:
        """Merge each index into one segment; return of how many."""
        connection = tx.connection
        return self._each(connection, lambda index: upkeep.command(connection, index, "optimize"))

    def rebuild(self, tx: Transaction) -> int:
        """Build each index anew from the messages; return how many. What is damaged is replaced."""
        connection = tx.connection
        if not upkeep.has_fts5(connection):
            return 0
        count = self._rebuild(connection)
        if self.has_cjk and CJK.name in upkeep.objects(connection):
            upkeep.command(connection, CJK, "rebuild")
            clear_rebuild(connection, CJK_REBUILD)
            count += 1
        return count

    def _rebuild(self, connection: Connection) -> int:
        found = upkeep.objects(connection)
        if not upkeep.needs_rebuild(connection, found):
            indexes = [index for index in upkeep.kept(connection) if index.name in found]
            try:
                for index in indexes:
                    upkeep.command(connection, index, "rebuild")
            except Exception as error:
                if is_busy(error):
                    raise
                logger.warning("the search index is replaced: %s", as_standard(error))
            else:
                clear_rebuild(connection, REBUILD)
                return len(indexes)
        return upkeep.restore_search(connection)

    def is_improvable(self, tx: Transaction) -> bool:
        """Whether a layout is old, an index empty, trash left, or the CJK index out of date."""
        connection = tx.connection
        if not upkeep.has_fts5(connection) or upkeep.is_marked(connection, upkeep.STALE):
            return False
        found = upkeep.objects(connection)
        return (
            any(name.startswith(upkeep.TRASH) for name in found)
            or _is_retired(connection, found)
            or upkeep.form(found) is not upkeep.Form.NEWEST
            or upkeep.is_empty(connection, found)
            or (self.has_cjk and upkeep.is_marked(connection, upkeep.CJK_STALE))
        )

    def reshape(self, tx: Transaction) -> bool:
        """Bring the indexes into layout 3, to be filled by steps; False without FTS5.

        One that other programs have defined is filled anew, since it may hold other texts.
        """
        connection = tx.connection
        if not upkeep.has_fts5(connection):
            return False
        found = upkeep.objects(connection)
        if (
            upkeep.needs_rebuild(connection, found)
            or upkeep.form(found) is not upkeep.Form.NEWEST
            or not upkeep.is_own(found)
            or upkeep.lost_position(connection)
            or (upkeep.is_empty(connection, found) and not upkeep.is_marked(connection, REBUILD[0]))
        ):
            upkeep.defer_search(connection)
        elif _is_retired(connection, found):
            upkeep.put_search_aside(connection, [SUBSTRINGS])
        if self.has_cjk and (
            CJK.name not in found or upkeep.is_marked(connection, upkeep.CJK_STALE)
        ):
            upkeep.defer_cjk(connection)
        return True

    def defer(self, tx: Transaction) -> None:
        """Leave what is appended from now on to later steps, where that is the setting."""
        if self.defers:
            search_settings.defer_appends(tx.connection)

    def replace(self, tx: Transaction, index: SearchIndex) -> None:
        """Put an empty index in the place of a damaged one, to be filled by steps."""
        connection, fts = tx.connection, INDEXES[index]
        if not upkeep.can_create(connection, fts):
            return
        if fts is CJK:
            upkeep.defer_cjk(connection)
        else:
            upkeep.defer_search(connection)

    def discard(self, tx: Transaction, rows: int) -> bool:
        """Delete up to `rows` rows of former indexes; whether there is more."""
        return upkeep.discard(tx.connection, rows)

    def unsettled(self, tx: Transaction) -> str | None:
        """Return the reason why layout 3 is not reached."""
        connection = tx.connection
        found = upkeep.objects(connection)
        is_pending = search_settings.is_pending(connection) or (
            self.has_cjk and upkeep.is_marked(connection, CJK_REBUILD.high_water)
        )
        if is_pending or upkeep.is_empty(connection, found):
            return "backfill_incomplete"
        if any(name.startswith(upkeep.TRASH) for name in found):
            return "teardown_incomplete"
        return None

    def settle(self, tx: Transaction) -> None:
        """Record that layout 3 is reached."""
        upkeep.mark(tx.connection, upkeep.LAYOUT, upkeep.NEWEST_LAYOUT)
        upkeep.unmark(tx.connection, upkeep.LEGACY)

    def _indexes(self, connection: Connection, rebuild: Rebuild | None = None) -> list[FtsIndex]:
        if not upkeep.has_fts5(connection):
            return []
        found = upkeep.objects(connection)
        wanted = [*upkeep.kept(connection), *([CJK] if self.has_cjk else [])]
        return [
            index for index in wanted if index.name in found and rebuild in (None, index.rebuild)
        ]

    def _each(self, connection: Connection, act: Callable[[FtsIndex], object]) -> int:
        """Count the indexes for which an action succeeds; another failure is only logged."""
        count = 0
        for index in self._indexes(connection):
            try:
                act(index)
            except Exception as error:
                if is_busy(error):
                    raise
                logger.warning("%s is left as it is: %s", index.name, as_standard(error))
            else:
                count += 1
        return count


def _is_retired(connection: Connection, found: upkeep.Objects) -> bool:
    """Whether there is a trigram index although a setting wants none."""
    return SUBSTRINGS.name in found and upkeep.is_marked(connection, upkeep.SUBSTRINGS_STALE)
