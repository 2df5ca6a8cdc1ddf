"""Ending sessions whose runtime is gone, and bringing back those that were put away with it."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from sqlalchemy import (
    ClauseElement,
    ColumnElement,
    Double,
    bindparam,
    delete,
    select,
    update,
)
from sqlalchemy.orm import aliased

from hermes_orm import clock
from hermes_orm.dialects import Prepared
from hermes_orm.dialects.expressions import bound_texts, epoch_now, has_key, has_key_of, text_list
from hermes_orm.dialects.prepared import Params
from hermes_orm.models import CompressionLock, GatewayHeartbeat, Session, SessionTurnLease
from hermes_orm.repositories.base import Repository
from hermes_orm.repositories.compression.guards import guarded_sessions
from hermes_orm.repositories.gateway.rows import activity, has_reason
from hermes_orm.repositories.lineage.ancestry import SESSION_ID
from hermes_orm.repositories.lineage.chains import tip_of_session
from hermes_orm.repositories.lineage.lineage import with_carried
from hermes_orm.repositories.retention.deletion import chunks
from hermes_orm.repositories.sessions.end_reasons import (
    RECOVERABLE_END_REASONS,
    STARTUP_ORPHAN_REAP,
)
from hermes_orm.repositories.sessions.flags import UNARCHIVE, conversations
from hermes_orm.repositories.sessions.sessions import REOPEN
from hermes_orm.session_text import lookup_key

PINS: Final = "pins"
HEARTBEATS: Final = "heartbeats"

_NOW: Final = epoch_now("now")
_GIVEN: Final = has_key_of(Session.id, bound_texts("ids"))


def _seconds(name: str) -> ColumnElement[float]:
    return bindparam(name, type_=Double())


def _is_idle() -> list[ColumnElement[bool]]:
    before = _NOW - _seconds("max_idle")
    return [
        Session.ended_at.is_(None),
        Session.source.in_(bound_texts("sources")),
        Session.started_at < before,
        activity(Session) < before,
        Session.id.not_in(bound_texts("excluded")),
    ]


def _is_served() -> ColumnElement[bool]:
    """Whether a backend is alive that may have begun the session.

    A sign of life from far in the future tells nothing: some clock jumped.
    """
    beat, staleness = GatewayHeartbeat, _seconds("staleness")
    return (
        select(beat.backend_id)
        .where(
            beat.last_heartbeat.between(_NOW - staleness, _NOW + staleness),
            beat.started_at <= Session.started_at + _seconds("grace"),
        )
        .exists()
    )


def _is_pinned() -> ColumnElement[bool]:
    """Whether the session, or one that it carries on, is pinned."""
    start: Any = select(Session.id.label("id"), Session.id.label("carrying")).where(_GIVEN)
    earlier, pinned = with_carried(start, "earlier"), aliased(Session)
    return Session.id.in_(
        select(earlier.c.carrying)
        .join_from(earlier, pinned, has_key(pinned.id, earlier.c.id))
        .where(pinned.pinned == 1)
    )


def _is_left(names: frozenset[str]) -> list[ColumnElement[bool]]:
    spared: list[ColumnElement[bool]] = [Session.id.in_(guarded_sessions())]
    spared += [_is_pinned()] if PINS in names else []
    spared += [_is_served()] if HEARTBEATS in names else []
    return [_GIVEN, *_is_idle(), *(~condition for condition in spared)]


@lru_cache
def lock_left(names: frozenset[str]) -> Prepared:
    """Return the statement that locks those of some sessions that nobody runs any more."""

    def statement() -> ClauseElement:
        left = select(Session.id).where(*_is_left(names)).order_by(Session.id)
        return left.with_for_update(skip_locked=True, key_share=True, of=Session)

    return Prepared(statement)


@lru_cache
def end_left(names: frozenset[str]) -> Prepared:
    """Return the statement that ends those of some sessions that nobody runs any more."""

    def statement() -> ClauseElement:
        ended = update(Session).where(*_is_left(names))
        values: dict[str, Any] = {"ended_at": _NOW, "end_reason": STARTUP_ORPHAN_REAP}
        return ended.values(values).returning(Session.started_at, Session.id)

    return Prepared(statement)


def _drop_leases() -> ClauseElement:
    earlier = with_carried(select(Session.id).where(_GIVEN), "earlier")
    conversation = SessionTurnLease.conversation_id
    dropped = delete(SessionTurnLease).where(
        conversation.in_(select(earlier.c.id)), SessionTurnLease.expires_at <= _NOW
    )
    return dropped.returning(conversation)


def _drop_locks() -> ClauseElement:
    return delete(CompressionLock).where(
        has_key_of(CompressionLock.session_id, bound_texts("ids")),
        CompressionLock.expires_at < _NOW,
    )


def _lock_conversation() -> ClauseElement:
    conversation = conversations(Session.id == SESSION_ID)
    return (
        select(Session.id)
        .join_from(conversation, Session, has_key(Session.id, conversation.c.id))
        .order_by(Session.id)
        .with_for_update(of=Session)
    )


def _put_away_tip() -> ClauseElement:
    session, tip = aliased(Session), aliased(Session)
    return (
        select(tip.id)
        .join_from(session, tip, has_key(tip.id, tip_of_session()))
        .where(
            session.id == SESSION_ID,
            session.archived != 0,
            tip.ended_at.is_not(None),
            has_reason(tip, RECOVERABLE_END_REASONS),
        )
    )


CANDIDATES = Prepared(lambda: select(Session.id).where(*_is_idle()))
DROP_LEASES = Prepared(_drop_leases)
DROP_LOCKS = Prepared(_drop_locks)
LOCK_CONVERSATION = Prepared(_lock_conversation)
PUT_AWAY_TIP = Prepared(_put_away_tip)


class ReapingRepository(Repository):
    """Open sessions that nobody runs, and archived ones whose end was nobody's wish."""

    def sweep(self, names: frozenset[str], params: Params) -> list[str]:
        """End the sessions that nobody runs; return their ids, by start.

        What another transaction has locked is in use. Leases and locks of the others that are over
        are deleted, so that whoever held them comes too late.
        """
        ended: list[tuple[float, str]] = []
        params = {**params, "now": clock.now()}
        for chunk in chunks(row[0] for row in self.tx.all(CANDIDATES, params)):
            rows = self.tx.all(lock_left(names), {**params, "ids": text_list(chunk)})
            left = {**params, "ids": text_list(row[0] for row in rows)}
            if rows:
                self.tx.all(DROP_LEASES, left)
                self.tx.run(DROP_LOCKS, left)
                ended += [(row[0], row[1]) for row in self.tx.all(end_left(names), left)]
        return [session_id for _, session_id in sorted(ended)]

    def unarchive_recoverable_session(self, session_id: str) -> bool:
        """Bring an archived conversation back and open its tip, if only a runtime had left that.

        False, with nothing changed, when it is not archived, or its tip is open or was ended
        otherwise.
        """
        this = {"session_id": lookup_key(session_id)}
        self.tx.all(LOCK_CONVERSATION, this)
        tip = self.tx.scalar(PUT_AWAY_TIP, this)
        if tip is None:
            return False
        self.tx.all(UNARCHIVE, this)
        self.tx.run(REOPEN, {"session_id": tip})
        return True
