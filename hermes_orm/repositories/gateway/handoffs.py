"""Hand-offs: a session that goes on on another platform.

`sessions.handoff_state` goes from NULL to `pending`, `running`, and `completed` or `failed`; from
these two it may be requested again.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    ClauseElement,
    ColumnElement,
    and_,
    bindparam,
    exists,
    null,
    or_,
    select,
    update,
)

from hermes_orm.dialects import Prepared
from hermes_orm.dialects.expressions import bound_texts, has_key_of, text_list
from hermes_orm.gateway_rows import GatewaySessionRow, HandoffState
from hermes_orm.models import Session, SystemPrompt
from hermes_orm.repositories.base import Repository
from hermes_orm.repositories.gateway.rows import gateway_columns, gateway_row
from hermes_orm.repositories.paging import row_limit
from hermes_orm.session_text import lookup_key, session_text

PENDING: Final = "pending"
RUNNING: Final = "running"
COMPLETED: Final = "completed"
FAILED: Final = "failed"

MAX_ERROR_LENGTH: Final = 500

_THIS: Final = Session.id == bindparam("session_id")
_IS_PENDING: Final = Session.handoff_state == PENDING
_OLDEST: Final = (Session.started_at, Session.id)

REQUEST = Prepared(
    update(Session)
    .where(
        _THIS,
        or_(
            Session.handoff_state.is_(None),
            and_(Session.handoff_state != PENDING, Session.handoff_state != RUNNING),
        ),
    )
    .values(handoff_state=PENDING, handoff_platform=bindparam("platform"), handoff_error=null())
)
STATE = Prepared(
    select(Session.handoff_state, Session.handoff_platform, Session.handoff_error).where(_THIS)
)
HAS_PENDING = Prepared(select(exists().where(_IS_PENDING)))
CLAIM = Prepared(update(Session).where(_THIS, _IS_PENDING).values(handoff_state=RUNNING))
LOCK_PENDING = Prepared(
    select(Session.id)
    .where(_IS_PENDING)
    .order_by(*_OLDEST)
    .limit(bindparam("limit", type_=BigInteger()))
    .with_for_update(skip_locked=True, key_share=True)
)
# No row is skipped: nobody would ever come back to it.
LOCK_RUNNING = Prepared(
    select(Session.id)
    .where(Session.handoff_state == RUNNING)
    .order_by(Session.id)
    .with_for_update(key_share=True)
)


def _rows_where(condition: ColumnElement[bool]) -> ClauseElement:
    return (
        select(*gateway_columns())
        .outerjoin(SystemPrompt, SystemPrompt.hash == Session.system_prompt_hash)
        .where(condition)
        .order_by(*_OLDEST)
    )


def _claim_locked() -> ClauseElement:
    given = has_key_of(Session.id, bound_texts("ids"))
    return update(Session).where(given, _IS_PENDING).values(handoff_state=RUNNING)


def _fail_locked() -> ClauseElement:
    given = has_key_of(Session.id, bound_texts("ids"))
    return (
        update(Session)
        .where(given, Session.handoff_state == RUNNING)
        .values(handoff_state=FAILED, handoff_error=bindparam("error"))
        .returning(Session.id)
    )


ALL_PENDING = Prepared(lambda: _rows_where(_IS_PENDING))
BY_ID = Prepared(lambda: _rows_where(has_key_of(Session.id, bound_texts("ids"))))
CLAIM_LOCKED = Prepared(_claim_locked)
FAIL_LOCKED = Prepared(_fail_locked)


@lru_cache
def finish(state: str, *, is_guarded: bool) -> Prepared:
    """Return the statement that ends a hand-off, whatever its state or only in `:states`."""
    statement = update(Session).where(_THIS)
    if is_guarded:
        statement = statement.where(Session.handoff_state.in_(bound_texts("states")))
    values = {"handoff_state": state, "handoff_error": bindparam("error")}
    return Prepared(statement.values(values))


class HandoffRepository(Repository):
    """The hand-off columns of `sessions`."""

    def request_handoff(self, session_id: str, platform: str) -> bool:
        """Ask for the session to go on on a platform; False when it is unknown or under way.

        Ended and archived sessions qualify. Raises ValueError for an empty platform.
        """
        if not platform:
            raise ValueError("platform is empty; name the platform that is to take the session")
        request = {"session_id": lookup_key(session_id), "platform": session_text(platform)}
        return self.tx.run(REQUEST, request) > 0

    def get_handoff_state(self, session_id: str) -> HandoffState | None:
        """Return where the hand-off is, all None when there never was one; None: unknown id."""
        row = self.tx.first(STATE, {"session_id": lookup_key(session_id)})
        return None if row is None else {"state": row[0], "platform": row[1], "error": row[2]}

    def list_pending_handoffs(self) -> list[GatewaySessionRow]:
        """Return the sessions that wait to be handed over, the earliest started first."""
        return [gateway_row(row) for row in self.tx.all(ALL_PENDING)]

    def has_pending_handoffs(self) -> bool:
        """Return whether a session waits to be handed over."""
        return bool(self.tx.scalar(HAS_PENDING))

    def claim_handoff(self, session_id: str) -> bool:
        """Take a hand-off that is pending; of all who try at once, one gets True."""
        return self.tx.run(CLAIM, {"session_id": lookup_key(session_id)}) > 0

    def claim_pending_handoffs(self, limit: int | None = 10) -> list[GatewaySessionRow]:
        """Take up to `limit` pending hand-offs, the earliest started first, and return them.

        What several processes get is disjoint. None or a negative limit: all of them.
        """
        locked = self.tx.all(LOCK_PENDING, {"limit": row_limit(limit)})
        if not locked:
            return []
        given = {"ids": text_list(row[0] for row in locked)}
        self.tx.run(CLAIM_LOCKED, given)
        return [gateway_row(row) for row in self.tx.all(BY_ID, given)]

    def complete_handoff(
        self, session_id: str, *, only_states: Sequence[str] | None = None
    ) -> bool:
        """End a hand-off well; False when there is no such session, or it is in another state.

        `only_states`: the states that it may be in; None or none: any. Who claimed it passes
        `("running",)`, so that a request of later is not ended unseen.
        """
        return self._finish(session_id, COMPLETED, None, only_states)

    def fail_handoff(
        self, session_id: str, error: str | None, *, only_states: Sequence[str] | None = None
    ) -> bool:
        """End a hand-off with an error, of which 500 characters are kept.

        Returns and guards as `complete_handoff` does; who gives up waiting for somebody to claim
        it passes `("pending",)`.
        """
        return self._finish(session_id, FAILED, _error_text(error), only_states)

    def _finish(
        self, session_id: str, state: str, error: str | None, only_states: Sequence[str] | None
    ) -> bool:
        if isinstance(only_states, str):
            raise TypeError("only_states must be a tuple of states; put a single one into a tuple")
        end: dict[str, Any] = {"session_id": lookup_key(session_id), "error": error}
        if only_states:
            end["states"] = text_list(
                key for given in only_states if (key := lookup_key(given)) is not None
            )
        return self.tx.run(finish(state, is_guarded=bool(only_states)), end) > 0

    def reclaim_stale_running_handoffs(self, error: str | None) -> list[str]:
        """Fail every running hand-off; return the ids of their sessions, in order.

        Right only while nobody else serves the store: see `handoff_watcher_lock`. They are not
        queued again, since what they were to deliver may have been delivered.
        """
        locked = self.tx.all(LOCK_RUNNING)
        if not locked:
            return []
        failure = {"ids": text_list(row[0] for row in locked), "error": _error_text(error)}
        return sorted(row[0] for row in self.tx.all(FAIL_LOCKED, failure))


def _error_text(error: str | None) -> str:
    return session_text((error or "")[:MAX_ERROR_LENGTH]) or ""
