"""Background delegations: who works on one, and how its result reaches whoever asked."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
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

from hermes_orm import clock
from hermes_orm.codec import decode_json
from hermes_orm.delivery_rows import DurableDelegation
from hermes_orm.dialects import Prepared
from hermes_orm.dialects.delegations import Delegations
from hermes_orm.dialects.expressions import epoch_now, insert_into, text_list
from hermes_orm.dialects.prepared import Params
from hermes_orm.models import AsyncDelegation
from hermes_orm.models.base import TEXT
from hermes_orm.repositories.base import Repository
from hermes_orm.rows import JsonObject
from hermes_orm.session_text import lookup_key, session_text, stored_key

RUNNING: Final = "running"
UNKNOWN: Final = "unknown"
PENDING: Final = "pending"
DELIVERED: Final = "delivered"
DROPPED: Final = "dropped"
EVENT_TYPE: Final = "async_delegation"

CLAIM_SECONDS: Final = 300.0
"""After this a claim may be taken over: a delivery takes less."""
MAX_ATTEMPTS: Final = 8
DELIVERED_SECONDS: Final = 7 * 86_400.0
MAX_SETTLED: Final = 50
MAX_PENDING: Final = 1_000
"""Results that are kept: delivered or dropped ones, and those that still wait."""

TASK_KEYS: Final = ("goal", "goals", "context", "toolsets", "role", "model", "is_batch")
ABANDONED_ERROR: Final = (
    "The process that ran this task ended before it reported a result. What the task had done by "
    "then is done; check before running it again."
)

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
class Statements:
    """What concerns the owner of a delegation, in the form that a database tells owners."""

    dispatch: Prepared
    renew: Prepared
    complete: Prepared
    abandoned: Prepared
    lose: Prepared


@lru_cache
def statements(of: Delegations) -> Statements:
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
    return Statements(
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
                select(*(columns[name] for name in _TOLD))
                .where(is_active, of.is_abandoned)
                .order_by(columns.delegation_id)
                .with_for_update(skip_locked=True)
            )
        ),
        lose=Prepared(
            lambda: update(of.table).where(is_this).values(state=UNKNOWN, **ended, **unsent)
        ),
    )


_TOLD: Final = (
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


def _beyond(limit: int, *delivery_states: str) -> ClauseElement:
    """Delete ended delegations but for `limit`: delivered ones first, the oldest first."""
    kept_longer = case((_DELIVERY == DELIVERED, literal_column("1")), else_=literal_column("0"))
    excess = (
        select(_ID)
        .where(~_ACTIVE, or_(*(state == _DELIVERY for state in delivery_states)))
        .order_by(kept_longer, AsyncDelegation.updated_at.desc(), _ID.desc())
        .offset(limit)
    )
    return delete(AsyncDelegation).where(_ID.in_(excess))


LIMIT_SETTLED = Prepared(lambda: _beyond(MAX_SETTLED, DELIVERED, DROPPED))
LIMIT_PENDING = Prepared(lambda: _beyond(MAX_PENDING, PENDING))

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


class DelegationRepository(Repository):
    """Rows of `async_delegations`. An owner is given as `Process.params()`."""

    def dispatch(self, owner: Params, given: Params) -> None:
        """Record a task as running, whatever was known of its id; forget old results."""
        now = {"now": clock.now()}
        self.tx.run(self._statements.dispatch, {**owner, **given, **now})
        for statement in (FORGET, LIMIT_SETTLED, LIMIT_PENDING):
            self.tx.run(statement, now)

    def renew(self, owner: Params) -> None:
        """Extend the leases of what the owner works on; on SQLite it is known without."""
        if self.tx.dialect.delegations.renewed:
            self.tx.run(self._statements.renew, {**owner, "now": clock.now()})

    def complete(self, owner: Params, outcome: Params) -> bool:
        """Store the result of what the owner works on; False when it is no longer its work."""
        outcome = {**owner, **outcome, "now": clock.now()}
        return self.tx.first(self._statements.complete, outcome) is not None

    def owners(self) -> set[tuple[int, int | None]]:
        """Return the processes that work on something, by id and start time."""
        return {(row[0], row[1]) for row in self.tx.all(OWNERS)}

    def recover(self, gone: Iterable[str]) -> int:
        """End what nobody works on any more as `unknown`; return how many that are."""
        now = clock.now()
        search = {"gone": text_list(gone), "now": now}
        found = [
            dict(zip(_TOLD, row, strict=True))
            for row in self.tx.all(self._statements.abandoned, search)
        ]
        self.tx.run_many(self._statements.lose, [_lost(row, now) for row in found])
        return len(found)

    def undelivered(self) -> list[tuple[str, Any]]:
        """Return id and event of every result that nobody has got, in the order of completion."""
        return [(row[0], decode_json(row[1])) for row in self.tx.all(UNDELIVERED)]

    def delete_delegation_dispatch(self, delegation_id: str) -> None:
        """Forget a delegation whose task could not be started."""
        self.tx.run(DELETE, {"delegation_id": lookup_key(delegation_id)})

    def get_durable_delegation(self, delegation_id: str) -> DurableDelegation | None:
        """Return what is known of a delegation; its result is None until there is one."""
        row = self.tx.first(GET, {"delegation_id": lookup_key(delegation_id)})
        if row is None:
            return None
        return {
            "delegation_id": row[0],
            "origin_session": row[1],
            "state": row[2],
            "dispatched_at": row[3],
            "completed_at": row[4],
            "result": decode_json(row[5]),
            "delivery_state": row[6],
            "delivery_attempts": row[7],
            "origin_session_id": row[8],
        }

    def claim(self, delegation_id: str, claim_id: str) -> bool:
        """Take the right to deliver a result; True also where there is no row to protect."""
        claim = _claim(delegation_id, stored_key(claim_id, "claim id"))
        won = self.tx.first(CLAIM, claim) or self.tx.first(KNOWN, claim) is None
        return bool(won)

    def held(self, transition: Prepared, delegation_id: str, claim_id: str | None) -> bool:
        """Run `RELEASE`, `DROP`, `COMPLETE` or `DELIVER`; False when nothing was changed."""
        return self.tx.first(transition, _claim(delegation_id, lookup_key(claim_id))) is not None

    @property
    def _statements(self) -> Statements:
        return statements(self.tx.dialect.delegations)


def task_json(task: Mapping[str, Any]) -> str:
    """Return what is stored of a task."""
    return encoded({key: task[key] for key in TASK_KEYS if key in task})


def encoded(value: object) -> str:
    """Return a value as JSON text; what JSON cannot hold, as its `str()`."""
    return json.dumps(value, default=str)


def delegation_key(delegation_id: object) -> str:
    """Return the id of a delegation that is to be stored; raises ValueError for an empty one."""
    if not delegation_id:
        raise ValueError("a delegation needs a delegation_id; give it one")
    return stored_key(delegation_id, "delegation id")


def _claim(delegation_id: str, claim_id: str | None) -> Params:
    return {
        "delegation_id": lookup_key(delegation_id),
        "claim_id": session_text(claim_id),
        "now": clock.now(),
    }


def _lost(row: JsonObject, now: float) -> Params:
    """Return what is stored of an abandoned delegation: event and result, made up."""
    task = decode_json(row.pop("task_json"))
    outcome = {"status": UNKNOWN, "summary": None, "error": ABANDONED_ERROR, "completed_at": now}
    event = {
        "type": EVENT_TYPE,
        "session_key": row["origin_session"],
        **row,
        **(task if isinstance(task, dict) else {}),
        **outcome,
    }
    return {
        "delegation_id": row["delegation_id"],
        "event_json": encoded(event),
        "result_json": encoded(outcome),
        "now": now,
    }
