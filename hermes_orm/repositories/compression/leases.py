"""Leases with a deadline: one on the compression of a session, one on a turn of a conversation."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import (
    ClauseElement,
    ColumnElement,
    Double,
    and_,
    bindparam,
    case,
    delete,
    literal_column,
    or_,
    select,
    update,
)
from sqlalchemy.orm import InstrumentedAttribute

from hermes_orm import clock
from hermes_orm.arguments import real_number
from hermes_orm.dialects import Prepared
from hermes_orm.dialects.expressions import epoch_now, insert_into
from hermes_orm.dialects.prepared import Params
from hermes_orm.dialects.transcript import MINIMAL_TTL_SECONDS
from hermes_orm.models import CompressionLock, SessionTurnLease
from hermes_orm.repositories.base import Repository
from hermes_orm.repositories.lineage.ancestry import SESSION_ID
from hermes_orm.repositories.messages.messages import lease_key
from hermes_orm.session_text import lookup_key, session_text, stored_key

_NOW: Final = epoch_now("now")
_DEADLINE: Final = _NOW + bindparam("ttl_seconds", type_=Double)
_HOLDER: Final[ColumnElement[str]] = bindparam("holder")
_DONE: Final[ColumnElement[str]] = literal_column("1")


@dataclass(frozen=True, slots=True)
class Lease:
    """The statements over one table of leases; each finds its row by `:session_id`."""

    acquire: Prepared
    extend: Prepared
    release: Prepared
    holder: Prepared

    @classmethod
    def of(
        cls,
        model: type[CompressionLock | SessionTurnLease],
        column: InstrumentedAttribute[str],
        key: Callable[[], ColumnElement[str]],
        is_before: Callable[[Any, Any], ColumnElement[bool]],
    ) -> Lease:
        """Return the statements over `model`, whose `column` is `key`.

        `is_before(expires_at, now)` tells whether a lease is over.
        """
        is_over = is_before(model.expires_at, _NOW)

        def acquire() -> ClauseElement:
            given = {"holder": _HOLDER, "acquired_at": _NOW, "expires_at": _DEADLINE}
            statement = insert_into(model, {column.key: key(), **given})
            is_own = model.holder == statement.excluded.holder
            is_kept = and_(is_own, ~is_over)
            lasts = and_(is_kept, model.expires_at > _DEADLINE)
            return statement.on_conflict_do_update(
                index_elements=[column.key],
                set_={
                    "holder": statement.excluded.holder,
                    "acquired_at": case((is_kept, model.acquired_at), else_=_NOW),
                    "expires_at": case((lasts, model.expires_at), else_=_DEADLINE),
                },
                where=or_(is_own, is_over, model.holder == bindparam("gone")),
            ).returning(_DONE)

        def own() -> ColumnElement[bool]:
            return and_(column == key(), model.holder == _HOLDER)

        return cls(
            acquire=Prepared(acquire),
            extend=Prepared(
                lambda: update(model).where(own()).values(expires_at=_DEADLINE).returning(_DONE)
            ),
            release=Prepared(lambda: delete(model).where(own()).returning(_DONE)),
            holder=Prepared(lambda: select(model.holder).where(column == key(), ~is_over)),
        )


COMPRESSION_LOCK: Final = Lease.of(
    CompressionLock, CompressionLock.session_id, lambda: SESSION_ID, operator.lt
)
TURN_LEASE: Final = Lease.of(
    SessionTurnLease, SessionTurnLease.conversation_id, lease_key, operator.le
)
LEASE_KEY = Prepared(lambda: select(lease_key()))


class LeaseRepository(Repository):
    """Rows of `compression_locks` and `session_turn_leases`."""

    def acquire(
        self, lease: Lease, session_id: str, holder: str, ttl_seconds: float, gone: str | None
    ) -> bool:
        """Take a lease that is free, over, the holder's already, or that of `gone`.

        Its deadline is never brought forward. False, with nothing changed, when another has it.
        """
        claim = {**_claim(stored_key(session_id), holder, ttl_seconds), "gone": gone}
        return self.tx.first(lease.acquire, claim) is not None

    def holder(self, lease: Lease, session_id: str) -> str | None:
        """Return who has a lease that is not over."""
        this = {"session_id": lookup_key(session_id), "now": clock.now()}
        holder: str | None = self.tx.scalar(lease.holder, this)
        return holder

    def refresh_compression_lock(
        self, session_id: str, holder: str, ttl_seconds: float = 300.0
    ) -> bool:
        """Move the holder's deadline, also one that has passed; False for anybody else."""
        claim = _claim(lookup_key(session_id), holder, ttl_seconds)
        return self.tx.first(COMPRESSION_LOCK.extend, claim) is not None

    def release_compression_lock(self, session_id: str, holder: str) -> None:
        """Give the lock back, if it is the holder's."""
        self.tx.first(COMPRESSION_LOCK.release, _claim(lookup_key(session_id), holder))

    def get_compression_lock_holder(self, session_id: str) -> str | None:
        """Return who may compress the session now; None when nobody does."""
        return self.holder(COMPRESSION_LOCK, session_id)

    def refresh_session_turn_lease(
        self, session_id: str, holder: str, *, ttl_seconds: float = 300.0
    ) -> bool:
        """Let the holder's lease end in `ttl_seconds`, also one that is over.

        False when the holder has none. Any session of the conversation will do.
        """
        claim = _claim(lookup_key(session_id), holder, turn_ttl(ttl_seconds))
        return self.tx.first(TURN_LEASE.extend, claim) is not None

    def release_session_turn_lease(self, session_id: str, holder: str) -> None:
        """Give the lease back, if it is the holder's. Any session of the conversation will do."""
        self.tx.first(TURN_LEASE.release, _claim(lookup_key(session_id), holder))

    def session_turn_lease_key(self, session_id: str) -> str:
        """Return the id that the session's turn lease is kept under: its conversation's root."""
        key: str | None = self.tx.scalar(LEASE_KEY, {"session_id": lookup_key(session_id)})
        return session_id if key is None else key


def turn_ttl(seconds: float) -> float:
    """Return how long a turn lease lasts when `seconds` are asked for."""
    return max(MINIMAL_TTL_SECONDS, real_number(seconds, "ttl_seconds"))


def _claim(session_id: str | None, holder: str, ttl_seconds: float = 0.0) -> Params:
    return {
        "session_id": session_id,
        "holder": session_text(holder),
        "ttl_seconds": real_number(ttl_seconds, "ttl_seconds"),
        "now": clock.now(),
    }
