"""Compressed sessions whose continuation never came, or never began."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import Select, Update, bindparam, delete, exists, null, select, update
from sqlalchemy.orm import aliased

from hermes_orm import clock
from hermes_orm.dialects import Prepared
from hermes_orm.dialects.expressions import epoch_now
from hermes_orm.models import CompressionLock, Message, Session
from hermes_orm.repositories.base import Repository
from hermes_orm.repositories.lineage.lineage import is_continuation
from hermes_orm.repositories.sessions.end_reasons import COMPRESSION, ORPHANED_COMPRESSION
from hermes_orm.session_text import lookup_key

ORPHANED_AFTER_SECONDS: Final = 7 * 86_400.0

_THIS: Final = Session.id == bindparam("session_id")
_ITS_LOCK: Final = CompressionLock.session_id == bindparam("session_id")

LOCK_COMPRESSED = Prepared(  # FOR UPDATE: it also holds up whoever inserts a child
    select(Session.id)
    .where(_THIS, Session.ended_at.is_not(None), Session.end_reason == COMPRESSION)
    .with_for_update()
)
DROP_EXPIRED_LOCK = Prepared(
    delete(CompressionLock).where(_ITS_LOCK, CompressionLock.expires_at < epoch_now("now"))
)
REOPEN_UNLOCKED = Prepared(
    update(Session)
    .where(_THIS, ~exists().where(_ITS_LOCK))
    .values(ended_at=null(), end_reason=null())
)


def _continuation() -> Select[Any]:
    child, parent = aliased(Session), aliased(Session)
    return (
        select(child.id)
        .join_from(parent, child, is_continuation(child, parent))
        .where(parent.id == bindparam("session_id"))
        .limit(1)
    )


def _finalize() -> Update:
    child, parent = aliased(Session), aliased(Session)
    orphans = (
        select(child.id)
        .join_from(child, parent, is_continuation(child, parent))
        .where(
            parent.ended_at.is_not(None),
            child.ended_at.is_(None),
            child.end_reason.is_(None),
            child.api_call_count == 0,
            child.started_at < bindparam("before"),
            exists().where(Message.session_id == child.id),
        )
        .order_by(child.id)
        .with_for_update(key_share=True, of=child)
    )
    return (
        update(Session)
        .where(Session.id.in_(orphans))
        .values(ended_at=bindparam("now"), end_reason=ORPHANED_COMPRESSION)
    )


CONTINUATION = Prepared(_continuation)
FINALIZE = Prepared(_finalize)


class OrphanRepository(Repository):
    """Rows of `sessions` that a broken compression has left behind."""

    def reopen_orphaned_compression_session(self, session_id: str) -> bool:
        """Open a compressed session that nothing carries on, and that nobody is compressing.

        An expired compression lock is removed with it. False, with nothing changed, otherwise.
        """
        this = {"session_id": lookup_key(session_id), "now": clock.now()}
        if self.tx.first(LOCK_COMPRESSED, this) is None or self.tx.first(CONTINUATION, this):
            return False
        self.tx.run(DROP_EXPIRED_LOCK, this)
        return self.tx.run(REOPEN_UNLOCKED, this) > 0

    def finalize_orphaned_compression_sessions(self) -> int:
        """End continuations that began more than a week ago and never called a model.

        They are open and have messages, which are kept. Return how many.
        """
        now = clock.now()
        return self.tx.run(FINALIZE, {"now": now, "before": now - ORPHANED_AFTER_SECONDS})
