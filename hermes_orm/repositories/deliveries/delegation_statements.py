"""What is asked of background delegations, and how they change."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from sqlalchemy import (
    ClauseElement,
    ColumnElement,
    Double,
    SQLColumnExpression,
    bindparam,
    case,
    delete,
    func,
    literal_column,
    null,
    or_,
    select,
    update,
)

from hermes_orm.dialects import Prepared
from hermes_orm.dialects.delegations import Delegations
from hermes_orm.dialects.expressions import epoch_now, insert_into
from hermes_orm.models import AsyncDelegation
from hermes_orm.models.base import TEXT

RUNNING: Final = "running"
UNKNOWN: Final = "unknown"
PENDING: Final = "pending"
DELIVERED: Final = "delivered"
DROPPED: Final = "dropped"

CLAIM_SECONDS: Final = 300.0
"""After this a claim may be taken over: a delivery takes less."""
MAX_ATTEMPTS: Final = 8
DELIVERED_SECONDS: Final = 7 * 86_400.0
MAX_SETTLED: Final = 50
MAX_PENDING: Final = 1_000
"""Results that are kept: delivered or dropped ones, and those that still wait."""

_ID: Final = AsyncDelegation.delegation_id
_STATE: Final = AsyncDelegation.state
_DELIVERY: Final = AsyncDelegation.delivery_state


def _is_active(state: SQLColumnExpression[str]) -> ColumnElement[bool]:
    """Whether somebody works on it."""
    return or_(state == RUNNING, state == "finalizing")


_ACTIVE: Final = _is_active(_STATE)
_THIS: Final = AsyncDelegation.delegation_id == bindparam("delegation_id")
_TIME: Final = bindparam("now", type_=Double)
_DONE: Final[ColumnElement[str]] = literal_column("1")
_UNCLAIMED: Final[dict[str, Any]] = {"delivery_claim": null(), "delivery_claimed_at": null()}
_RESULT: Final[dict[str, Any]] = {
    name: bindparam(name, type_=TEXT) for name in ("event_json", "result_json")
}


@dataclass(frozen=True)
class Owning:
    """What concerns the owner of a delegation, in the form that a database tells owners."""

    dispatch: Prepared
    renew: Prepared
    complete: Prepared
    abandoned: Prepared
    lose: Prepared


@lru_cache
def owning(of: Delegations) -> Owning:
    """Return the statements for a table of delegations."""
    columns = of.table.c
    is_this = columns.delegation_id == bindparam("delegation_id")
    is_active = _is_active(columns.state)
    ended = {"completed_at": _TIME, "updated_at": _TIME, **_RESULT, **of.ended}
    unsent = {"delivery_state": PENDING, **_UNCLAIMED}

    def dispatch() -> ClauseElement:
        given = ("origin_session", "origin_ui_session_id", "parent_session_id", "task_json")
        values: dict[str, Any] = {
            "delegation_id": bindparam("delegation_id"),
            **{name: bindparam(name, type_=TEXT) for name in (*given, "origin_session_id")},
            "state": RUNNING,
            "dispatched_at": _TIME,
            "updated_at": _TIME,
            "delivery_attempts": literal_column("0"),
            **dict.fromkeys(("completed_at", "event_json", "result_json", "delivered_at"), null()),
            **unsent,
            **of.owned,
        }
        statement = insert_into(of.table, values)
        anew = {name: statement.excluded[name] for name in values if name != "delegation_id"}
        return statement.on_conflict_do_update(index_elements=["delegation_id"], set_=anew)

    owned = update(of.table).where(is_active, of.is_own)
    return Owning(
        dispatch=Prepared(dispatch),
        renew=Prepared(lambda: owned.values(**of.renewed)),
        complete=Prepared(
            lambda: (
                owned.where(is_this)
                .values(state=bindparam("state"), **ended, **unsent)
                .returning(_DONE)
            )
        ),
        abandoned=Prepared(
            lambda: (
                select(*(columns[name] for name in TOLD))
                .where(is_active, of.is_abandoned)
                .order_by(columns.delegation_id)
                .with_for_update(skip_locked=True)
            )
        ),
        lose=Prepared(
            lambda: update(of.table).where(is_this).values(state=UNKNOWN, **ended, **unsent)
        ),
    )


TOLD: Final = (
    "delegation_id",
    "origin_session",
    "origin_ui_session_id",
    "origin_session_id",
    "parent_session_id",
    "dispatched_at",
    "task_json",
)
"""What an event tells of an abandoned delegation."""

OWNERS = Prepared(
    select(AsyncDelegation.owner_pid, AsyncDelegation.owner_started_at)
    .where(_ACTIVE, AsyncDelegation.owner_pid.is_not(None))
    .distinct()
)
DELETE = Prepared(delete(AsyncDelegation).where(_THIS))
FORGET = Prepared(
    lambda: delete(AsyncDelegation).where(
        _DELIVERY == DELIVERED,
        func.coalesce(AsyncDelegation.delivered_at, AsyncDelegation.updated_at)
        < _TIME - DELIVERED_SECONDS,
    )
)


def _beyond(limit: int, is_counted: ColumnElement[bool]) -> ClauseElement:
    """Delete ended delegations but for `limit`: delivered ones first, the oldest first."""
    kept_longer = case((_DELIVERY == DELIVERED, literal_column("1")), else_=literal_column("0"))
    excess = (
        select(_ID)
        .where(~_ACTIVE, is_counted)
        .order_by(kept_longer, AsyncDelegation.updated_at.desc(), _ID.desc())
        .offset(limit)
    )
    return delete(AsyncDelegation).where(_ID.in_(excess))


LIMIT_SETTLED = Prepared(lambda: _beyond(MAX_SETTLED, _DELIVERY != PENDING))
LIMIT_PENDING = Prepared(lambda: _beyond(MAX_PENDING, _DELIVERY == PENDING))

UNDELIVERED = Prepared(
    select(_ID, AsyncDelegation.event_json)
    .where(~_ACTIVE, _DELIVERY == PENDING, AsyncDelegation.event_json.is_not(None))
    .order_by(AsyncDelegation.completed_at, _ID)
)
GET = Prepared(
    select(
        _ID,
        AsyncDelegation.origin_session,
        _STATE,
        AsyncDelegation.dispatched_at,
        AsyncDelegation.completed_at,
        AsyncDelegation.result_json,
        _DELIVERY,
        AsyncDelegation.delivery_attempts,
        func.coalesce(AsyncDelegation.origin_session_id, ""),
    ).where(_THIS)
)

_NOW: Final = epoch_now("now")
_IS_UNCLAIMED: Final = or_(
    AsyncDelegation.delivery_claim.is_(None),
    func.coalesce(AsyncDelegation.delivery_claimed_at, literal_column("0"))
    < _NOW - literal_column(str(CLAIM_SECONDS)),
)
_HELD: Final = update(AsyncDelegation).where(
    _THIS, _DELIVERY == PENDING, AsyncDelegation.delivery_claim == bindparam("claim_id")
)

KNOWN = Prepared(select(_DONE).where(_THIS))
CLAIM = Prepared(
    update(AsyncDelegation)
    .where(_THIS, _DELIVERY == PENDING, _IS_UNCLAIMED)
    .values(
        delivery_claim=bindparam("claim_id"),
        delivery_claimed_at=_NOW,
        delivery_attempts=AsyncDelegation.delivery_attempts + literal_column("1"),
        updated_at=_TIME,
    )
    .returning(_DONE)
)
RELEASE = Prepared(
    _HELD.values(
        delivery_state=case(
            (AsyncDelegation.delivery_attempts >= MAX_ATTEMPTS, DROPPED), else_=PENDING
        ),
        updated_at=_TIME,
        **_UNCLAIMED,
    ).returning(_DONE)
)
DROP = Prepared(
    _HELD.values(delivery_state=DROPPED, updated_at=_TIME, **_UNCLAIMED).returning(_DONE)
)
_DELIVER: Final[dict[str, Any]] = {
    "delivery_state": DELIVERED,
    "delivered_at": _TIME,
    "updated_at": _TIME,
    **_UNCLAIMED,
}
COMPLETE = Prepared(_HELD.values(**_DELIVER).returning(_DONE))
DELIVER = Prepared(
    update(AsyncDelegation).where(_THIS, _DELIVERY != DELIVERED).values(**_DELIVER).returning(_DONE)
)
