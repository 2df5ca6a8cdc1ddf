"""Compressing a transcript in place: its messages are archived, and others take their place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy import BigInteger, bindparam, case, func, select, update

from hermes_orm import clock
from hermes_orm.dialects import Prepared
from hermes_orm.dialects.expressions import epoch_now, unindexed
from hermes_orm.dialects.prepared import Params
from hermes_orm.dialects.transcript import is_open_for_appends
from hermes_orm.errors import (
    CompressionSessionClosedError,
    SessionCompressionInProgressError,
    shown,
)
from hermes_orm.models import CompressionLock, Message, Session
from hermes_orm.repositories.base import Repository
from hermes_orm.repositories.lineage.ancestry import SESSION_ID
from hermes_orm.repositories.messages.messages import MessageRepository
from hermes_orm.repositories.messages.undo import STORE_TOTALS, live_totals
from hermes_orm.repositories.sessions.models import patched_config
from hermes_orm.repositories.sessions.sessions import STORE_CONFIG
from hermes_orm.session_text import session_text

_OWN: Final = Message.session_id == SESSION_ID

LOCK = Prepared(
    select(Session.model_config, case((is_open_for_appends(), 1), else_=0))
    .where(Session.id == SESSION_ID)
    .with_for_update(key_share=True)
)
HOLD_COMPRESSION = Prepared(
    select(CompressionLock.holder)
    .where(
        CompressionLock.session_id == SESSION_ID,
        CompressionLock.holder == bindparam("holder"),
        CompressionLock.expires_at > epoch_now("now"),
    )
    .with_for_update()
)
LAST_ID = Prepared(select(func.coalesce(func.max(Message.id), 0)).where(_OWN))
ARCHIVE = Prepared(
    update(Message)
    .where(
        _OWN,
        unindexed(Message.active) == 1,
        Message.id <= bindparam("last_id", type_=BigInteger),
    )
    .values(active=0, compacted=1)
)


class CompactionRepository(Repository):
    """Rows of `messages` that are summarised by others."""

    def archive_and_compact(
        self,
        session_id: str,
        rows: Sequence[Params],
        total: Params,
        *,
        patch: Mapping[str, Any] | None,
        watermark: int | None,
        lock_holder: str | None,
    ) -> int:
        """Archive the live rows, append `rows` and copies of those after `watermark`."""
        this = {"session_id": session_id}
        locked = self.tx.first(LOCK, this)
        if locked is None:
            raise RuntimeError(f"Session not found: {shown(session_id)}; create it first")
        config, is_open = locked
        if not is_open:
            raise CompressionSessionClosedError(session_id)
        if lock_holder is not None and not self.holds_compression(session_id, lock_holder):
            raise SessionCompressionInProgressError.of(session_id)
        if patch is not None:
            patched = patched_config(session_id, config, patch)
            self.tx.run(STORE_CONFIG, {**this, "config": patched})
        last_id = self.tx.scalar(LAST_ID, this)
        if rows:
            MessageRepository(self.tx).extend(rows, total, None)
        copied = self.copy_tail(session_id, session_id, watermark, last_id)
        self.tx.run(ARCHIVE, {**this, "last_id": last_id})
        self.count_live(session_id)
        return len(rows) + copied

    def holds_compression(self, session_id: str, holder: str | None) -> bool:
        """Whether the holder's lock is not over; it cannot change hands before the commit."""
        claim = {"session_id": session_id, "holder": session_text(holder), "now": clock.now()}
        return self.tx.first(HOLD_COMPRESSION, claim) is not None

    def copy_tail(
        self, source_id: str, session_id: str, watermark: int | None, last_id: int
    ) -> int:
        """Copy the live rows after the watermark, up to `last_id`; none without a watermark."""
        if watermark is None:
            return 0
        tail = {
            "source_id": source_id,
            "session_id": session_id,
            "after_id": watermark,
            "last_id": last_id,
        }
        return self.tx.dialect.transcript.copy_tail(self.tx, tail)

    def count_live(self, session_id: str) -> None:
        """Have the counters of a locked session say what its live rows are."""
        totals = live_totals(self.tx, session_id)
        self.tx.run(STORE_TOTALS, {"session_id": session_id, **totals, "rewinds": 0})
