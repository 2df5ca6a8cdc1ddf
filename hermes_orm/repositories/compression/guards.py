"""Sessions that somebody works on right now."""

from __future__ import annotations

from sqlalchemy import CompoundSelect, select, union

from hermes_orm.dialects.expressions import epoch_now
from hermes_orm.models import CompressionLock, SessionTurnLease
from hermes_orm.repositories.lineage.lineage import with_carrying


def guarded_sessions() -> CompoundSelect[str]:
    """Select the ids of sessions under a compression lock, or of a conversation under a lease.

    What is over at `:now` guards nothing.
    """
    now = epoch_now("now")
    lease = select(SessionTurnLease.conversation_id.label("id"))
    leased = with_carrying(
        lease.where(SessionTurnLease.expires_at > now).cte("leased", recursive=True)
    )
    locked = select(CompressionLock.session_id).where(CompressionLock.expires_at >= now)
    return union(select(leased.c.id), locked)
