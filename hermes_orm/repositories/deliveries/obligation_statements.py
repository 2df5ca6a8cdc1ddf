"""What is asked of the ledger of replies, and how it changes."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    ClauseElement,
    ColumnElement,
    Double,
    and_,
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
from hermes_orm.dialects.delegations import OWNER_PID, OWNER_STARTED_AT, owner_key_of
from hermes_orm.dialects.expressions import bound_texts, epoch_now, insert_into
from hermes_orm.models import DeliveryObligation
from hermes_orm.models.base import TEXT
from hermes_orm.repositories.deliveries.attempts import (
    ABANDONED,
    ATTEMPTING,
    DEFAULT_PROFILE,
    DELIVERED,
    FAILED,
    PENDING,
)

LEASE_SECONDS: Final = 300.0
"""How long an owner may take to send a reply."""
SILENCE_SECONDS: Final = 900.0
"""After this an owner on another host that sends nothing is taken to be dead."""
KEPT_SECONDS: Final = 7 * 86_400.0
MAX_ROWS: Final = 500

_ROW: Final = DeliveryObligation
_STATE: Final = _ROW.state
_PROFILE: Final = func.coalesce(_ROW.adapter_profile, DEFAULT_PROFILE)
_TIME: Final = bindparam("now", type_=Double)
_NOW: Final = epoch_now("clock")
_ONE: Final[ColumnElement[int]] = literal_column("1")
_NOBODY: Final = dict.fromkeys(
    (
        "owner_pid",
        "owner_started_at",
        "owner_generation",
        "owner_host",
        "owner_installation_id",
        "lease_expires_at",
    ),
    null(),
)
_HOST: Final = bindparam("host", type_=TEXT)
_INSTALLATION: Final = bindparam("installation", type_=TEXT)
_OWNED: Final[dict[str, Any]] = {
    **_NOBODY,
    "owner_pid": OWNER_PID,
    "owner_started_at": OWNER_STARTED_AT,
    "owner_generation": bindparam("instance", type_=TEXT),
    "owner_host": _HOST,
    "owner_installation_id": _INSTALLATION,
}
_SENDING: Final = {
    **_OWNED,
    "state": ATTEMPTING,
    "delivery_fence": _ROW.delivery_fence + _ONE,
    "lease_expires_at": _NOW + LEASE_SECONDS,
    "updated_at": _TIME,
}
# Rows in the older form of the table do not name a host: they are of this one.
_IS_LOCAL: Final = and_(
    func.coalesce(_ROW.owner_host, _HOST) == _HOST,
    func.coalesce(_ROW.owner_installation_id, _INSTALLATION) == _INSTALLATION,
)
_IS_OWN: Final = and_(
    _ROW.owner_pid == OWNER_PID,
    _ROW.owner_started_at.is_not_distinct_from(OWNER_STARTED_AT),
    _IS_LOCAL,
)
_IS_OPEN: Final = or_(_STATE == PENDING, _STATE == ATTEMPTING, _STATE == FAILED)
_OWNER_KEY: Final = owner_key_of(_ROW.owner_pid, _ROW.owner_started_at)
_COLUMNS: Final = (
    _ROW.obligation_id,
    _ROW.delivery_fence,
    _ROW.session_key,
    _ROW.platform,
    _ROW.chat_id,
    _ROW.thread_id,
    _ROW.content,
    _STATE,
    _ROW.attempts,
    _ROW.created_at,
    _ROW.updated_at,
    _ROW.last_error,
    _PROFILE,
)


def _record(state: str, owner: dict[str, Any]) -> ClauseElement:
    texts = ("obligation_id", "session_key", "platform", "chat_id", "thread_id", "content")
    values = {
        **{name: bindparam(name, type_=TEXT) for name in (*texts, "adapter_profile")},
        "state": state,
        "created_at": _TIME,
        "updated_at": _TIME,
        **owner,
    }
    statement = insert_into(DeliveryObligation, values)
    return statement.on_conflict_do_nothing(index_elements=["obligation_id"]).returning(_ONE)


def _prune() -> ClauseElement:
    """Delete what ended long ago, and what is beyond the limit: delivered, abandoned, oldest."""
    rank = case((_STATE == DELIVERED, literal_column("2")), (_STATE == ABANDONED, _ONE), else_=0)
    is_new = _ROW.obligation_id == bindparam("obligation_id")
    excess = (
        select(_ROW.obligation_id)
        .order_by(is_new.desc(), rank, _ROW.updated_at.desc(), _ROW.obligation_id.desc())
        .offset(MAX_ROWS)
    )
    is_over = or_(_STATE == DELIVERED, _STATE == ABANDONED) & (
        _ROW.updated_at < _TIME - KEPT_SECONDS
    )
    return delete(DeliveryObligation).where(or_(is_over, _ROW.obligation_id.in_(excess)))


RECORD = Prepared(lambda: _record(PENDING, _OWNED))
ADOPT_REPLY = Prepared(lambda: _record(ATTEMPTING, _NOBODY))
PRUNE = Prepared(_prune)
FENCE = Prepared(
    select(_ROW.delivery_fence).where(_ROW.obligation_id == bindparam("obligation_id"))
)
RECORDED_SINCE = Prepared(
    select(_ONE)
    .where(
        _ROW.session_key == bindparam("session_key"),
        _ROW.content == bindparam("content"),
        _ROW.created_at >= bindparam("since", type_=Double),
    )
    .limit(1)
)
OWN_FAILED = Prepared(
    select(*_COLUMNS).where(_STATE == FAILED, _IS_OWN).order_by(_ROW.created_at, _ROW.obligation_id)
)

_THIS: Final = update(DeliveryObligation).where(
    _ROW.obligation_id == bindparam("obligation_id"),
    _ROW.delivery_fence == bindparam("fence", type_=BigInteger),
)
_SENT: Final = _THIS.where(_STATE == ATTEMPTING)
_ERROR: Final[ColumnElement[Any]] = bindparam("error", type_=TEXT)
_ENDED: Final = {"lease_expires_at": null(), "updated_at": _TIME}
BEGIN = Prepared(_THIS.where(_STATE == PENDING).values(**_SENDING).returning(_ONE))
DELIVER = Prepared(_SENT.values(state=DELIVERED, last_error=null(), **_ENDED).returning(_ONE))
FAIL = Prepared(_SENT.values(state=FAILED, last_error=_ERROR, **_ENDED).returning(_ONE))
RELEASE = Prepared(
    _SENT.values(
        state=FAILED,
        attempts=case((_ROW.attempts > 0, _ROW.attempts - _ONE), else_=0),
        last_error=func.coalesce(_ERROR, _ROW.last_error),
        **_ENDED,
    ).returning(_ONE)
)
CLAIM = Prepared(_THIS.values(**_SENDING, attempts=_ROW.attempts + _ONE))
ADOPT = Prepared(_THIS.values(**_OWNED, delivery_fence=_ROW.delivery_fence + _ONE))
ABANDON = Prepared(_THIS.values(state=ABANDONED, **_ENDED))


@lru_cache
def owners(is_on_one_host: bool) -> Prepared:
    """Return the statement that selects the owners of open replies whose life can be looked up."""
    is_near = [] if is_on_one_host else [_IS_LOCAL]
    owner = (_ROW.owner_pid, _ROW.owner_started_at)
    return Prepared(select(*owner).where(_IS_OPEN, owner[0].is_not(None), *is_near).distinct())


@lru_cache
def orphaned(is_on_one_host: bool) -> Prepared:
    """Return the statement that locks the open replies of owners that are dead.

    Where several hosts share the ledger, those elsewhere are dead when their lease is over.
    """
    is_gone = _OWNER_KEY.in_(bound_texts("gone"))
    is_silent = _ROW.lease_expires_at.is_(None) & (_ROW.updated_at < _NOW - SILENCE_SECONDS)
    is_dead = (
        is_gone
        if is_on_one_host
        else or_(
            _IS_LOCAL & is_gone,
            ~_IS_LOCAL & is_silent,
            ~_IS_OWN & (_ROW.lease_expires_at < _NOW),
        )
    )
    return Prepared(
        lambda: (
            select(*_COLUMNS)
            .where(_IS_OPEN, or_(_ROW.owner_pid.is_(None), is_dead))
            .order_by(_ROW.created_at, _ROW.obligation_id)
            .with_for_update(skip_locked=True)
        )
    )


@lru_cache
def own_failed(has_profile: bool) -> Prepared:
    """Return the statement that locks the replies which a process failed to send."""
    is_of_profile = [bindparam("profile", type_=TEXT) == _PROFILE] if has_profile else []
    query = (
        select(*_COLUMNS)
        .where(*is_of_profile, _STATE == FAILED, _IS_OWN, _ROW.platform == bindparam("platform"))
        .order_by(_ROW.created_at, _ROW.obligation_id)
        .with_for_update(skip_locked=True)
    )
    return Prepared(query)
