"""Rebuilding the indexes of messages in steps, between which everybody reads and writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlalchemy import ColumnElement, Text, bindparam, delete, func, or_, select

from hermes_orm.dialects import Prepared, Transaction
from hermes_orm.dialects.base import Row
from hermes_orm.dialects.indexing import CJK_REBUILD, REBUILD, Gap, Rebuild
from hermes_orm.dialects.search import SearchIndex
from hermes_orm.models import Message, StateMeta
from hermes_orm.repositories.base import Repository
from hermes_orm.repositories.meta import SET_META
from hermes_orm.rows import RebuildStatus

STEP_IDS: Final = 500
"""Row ids, not rows, that one step looks at."""
DEFERRED_IDS: Final = 256
"""The same, of a step behind which appends wait."""


def _keys() -> ColumnElement[bool]:
    keys = (bindparam(name, type_=Text()) for name in Rebuild._fields)
    return or_(*(StateMeta.key == key for key in keys))


READ = Prepared(lambda: select(StateMeta.key, StateMeta.value).where(_keys()))
CLAIM = Prepared(lambda: select(StateMeta.key, StateMeta.value).where(_keys()).with_for_update())
CLEAR = Prepared(lambda: delete(StateMeta).where(_keys()))
LATEST = Prepared(select(func.coalesce(func.max(Message.id), 0)))


def values_of(rows: Sequence[Row]) -> dict[str, str | None]:
    """Return rows of keys and values as a dict."""
    return {key: value for key, value in rows}  # noqa: C416  (a row is no tuple everywhere)


def until_now(tx: Transaction, gap: Gap | None) -> Gap | None:
    """Return what of a gap is written so far; None for nothing."""
    if gap is None or not gap.is_open:
        return gap
    latest: int = tx.scalar(LATEST) or 0
    return gap._replace(last_id=latest) if latest > gap.after_id else None


class IndexingRepository(Repository):
    """How far the indexes are, and the next step of their rebuild."""

    def fts_rebuild_status(self) -> RebuildStatus | None:
        """Return how far the rebuild of the search index is; None when none is pending."""
        return self._status(REBUILD)

    def fts_cjk_rebuild_status(self) -> RebuildStatus | None:
        """Return how far the rebuild of the CJK index is; None when none is pending."""
        return self._status(CJK_REBUILD)

    def step(self, rebuild: Rebuild, ids: int | None = None) -> bool:
        """Index the next row ids, 500 of them; return whether work remains.

        Claims the position first: several processes may step. What a crash leaves is continued.
        """
        indexing, keys = self.tx.dialect.indexing, rebuild._asdict()
        values = values_of(self.tx.all(CLAIM, keys))
        if not values or not indexing.has(self.tx, rebuild):
            return False
        pending = Gap.of(values, rebuild)
        gap = until_now(self.tx, pending)
        is_open = pending is not None and pending.is_open
        if gap is not None:
            position = min(gap.after_id + (ids or STEP_IDS), gap.last_id)
            indexing.fill(self.tx, rebuild, gap.after_id, position)
            is_more = position < gap.last_id
            if is_more or is_open or not indexing.complete(self.tx, rebuild, gap.last_id):
                self.tx.run(SET_META, {"key": rebuild.progress, "value": str(position)})
                return is_more or not is_open
        if not is_open:
            self.tx.run(CLEAR, keys)
        return False

    def is_behind(self) -> bool:
        """Whether appended messages are still to be indexed, or are not left to steps as wanted."""
        gap = Gap.of(values_of(self.tx.all(READ, REBUILD._asdict())), REBUILD)
        return gap is None or not gap.is_open or until_now(self.tx, gap) is not None

    def catch_up(self) -> bool:
        """Index the next appended messages; return whether work remains."""
        is_more = self.step(REBUILD, DEFERRED_IDS)
        if not is_more:
            self.tx.dialect.indexing.defer(self.tx)
        return is_more

    def is_outdated(self) -> bool:
        """Whether another version of this code would have indexed the same messages otherwise."""
        return self.tx.dialect.indexing.is_outdated(self.tx)

    def renew(self) -> None:
        """Throw away what is outdated; steps index it anew."""
        self.tx.dialect.indexing.renew(self.tx)

    def replace(self, index: SearchIndex) -> None:
        """Put an empty index in the place of a damaged one, to be filled by steps."""
        self.tx.dialect.indexing.replace(self.tx, index)

    def _status(self, rebuild: Rebuild) -> RebuildStatus | None:
        values = values_of(self.tx.all(READ, rebuild._asdict()))
        gap = until_now(self.tx, Gap.of(values, rebuild))
        if gap is None:
            return None
        return {
            "pending": True,
            "total": gap.last_id,
            "indexed": gap.after_id,
            "percent": min(100, 100 * gap.after_id // gap.last_id),
        }

    def optimize(self) -> int:
        """Tidy the indexes; return how many."""
        return self.tx.dialect.indexing.optimize(self.tx)

    def rebuild(self) -> int:
        """Build the indexes anew; return how many."""
        return self.tx.dialect.indexing.rebuild(self.tx)

    def is_improvable(self) -> bool:
        """Whether a rebuild in steps is pending, or an index has not its newest form."""
        indexing = self.tx.dialect.indexing
        for rebuild in (REBUILD, CJK_REBUILD):
            if indexing.has(self.tx, rebuild) and self._status(rebuild) is not None:
                return True
        return indexing.is_improvable(self.tx)

    def reshape(self) -> bool:
        """Bring the indexes into their newest form, to be filled by steps; False: impossible."""
        return self.tx.dialect.indexing.reshape(self.tx)

    def discard(self, rows: int) -> bool:
        """Delete some rows of former indexes; whether there is more."""
        return self.tx.dialect.indexing.discard(self.tx, rows)

    def unsettled(self) -> str | None:
        """Return the reason why the indexes have not their newest form; None when they have."""
        return self.tx.dialect.indexing.unsettled(self.tx)

    def settle(self) -> str | None:
        """Record that the indexes have their newest form; else return the reason why not."""
        reason = self.unsettled()
        if reason is None:
            self.tx.dialect.indexing.settle(self.tx)
        return reason

    def status(self) -> RebuildStatus | None:
        """Return how far the rebuild is that comes first."""
        return self._status(REBUILD) or self._status(CJK_REBUILD)
