"""The ledger of replies: what was promised, who sends it, and what became of it."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Any, Final, cast

from sqlalchemy import (
    BigInteger,
    ClauseElement,
    ColumnElement,
    Double,
    Table,
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
from sqlalchemy import cast as as_type

from hermes_orm import clock
from hermes_orm.delivery_rows import ClaimedObligation, DeliveryReceipt, PendingRetry
from hermes_orm.dialects import Prepared
from hermes_orm.dialects.delegations import OWNER_PID, OWNER_STARTED_AT
from hermes_orm.dialects.expressions import bound_texts, epoch_now, insert_into, text_list
from hermes_orm.dialects.prepared import Params
from hermes_orm.models import DeliveryObligation
from hermes_orm.models.base import TEXT
from hermes_orm.repositories.base import Repository
from hermes_orm.repositories.deliveries.attempts import (
    ABANDONED,
    ATTEMPTING,
    DEFAULT_PROFILE,
    DELIVERED,
    FAILED,
    MARKER,
    PENDING,
    Obligation,
)
from hermes_orm.session_text import lookup_key, session_text

LEASE_SECONDS: Final = 300.0
"""How long an owner may take to send a reply."""
SILENCE_SECONDS: Final = 900.0
"""After this an owner on another host that sends nothing is taken to be dead."""
KEPT_SECONDS: Final = 7 * 86_400.0
MAX_ROWS: Final = 500
MAX_ERROR_LENGTH: Final = 500

_ROW: Final = DeliveryObligation
_TABLE: Final = cast(Table, DeliveryObligation.__table__)
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
_OWNER_KEY: Final = (
    as_type(_ROW.owner_pid, TEXT) + ":" + func.coalesce(as_type(_ROW.owner_started_at, TEXT), "")
)
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
OWNERS = Prepared(
    select(_ROW.owner_pid, _ROW.owner_started_at)
    .where(_IS_OPEN, _ROW.owner_pid.is_not(None), _IS_LOCAL)
    .distinct()
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


class ObligationRepository(Repository):
    """Rows of `delivery_obligations`. An owner is given as `Process.params()`."""

    def record(self, owner: Params, reply: Params) -> DeliveryReceipt:
        """Record a reply before it is sent, unless it is known; return its receipt."""
        self._establish()
        reply = {**owner, **reply, **_moment(None)}
        if self.tx.first(RECORD, reply) is not None:
            self.tx.run(PRUNE, reply)
        return DeliveryReceipt(reply["obligation_id"], self.tx.scalar(FENCE, reply))

    def adopt_reply(self, reply: Params) -> bool:
        """Record a reply that may have been sent, for the next sweep; False when it is known."""
        self._establish()
        reply = {**reply, **_moment(None)}
        if self.tx.first(RECORDED_SINCE, reply) or not self.tx.first(ADOPT_REPLY, reply):
            return False
        self.tx.run(PRUNE, reply)
        return True

    def begin(self, owner: Params, receipt: DeliveryReceipt) -> DeliveryReceipt | None:
        """Take a reply that nobody has begun to send; None when somebody has."""
        if not self._changed(BEGIN, receipt, **owner):
            return None
        return DeliveryReceipt(receipt[0], int(receipt[1]) + 1)

    def mark_delivered(self, receipt: DeliveryReceipt) -> bool:
        """Record that a reply was sent; False when somebody else has taken it over."""
        return self._changed(DELIVER, receipt)

    def mark_failed(self, receipt: DeliveryReceipt, error: str = "") -> bool:
        """Record that a reply was not sent; False when somebody else has taken it over.

        Of the error, 500 characters are kept. `flood_control:<seconds>` says how long to wait.
        """
        return self._changed(FAIL, receipt, error=_error(error))

    def release_runtime_claim(self, receipt: DeliveryReceipt, error: str = "") -> bool:
        """Give back a reply that was claimed and never sent: that was no attempt.

        False when somebody else has taken it over. Without an error, the latest one stays.
        """
        return self._changed(RELEASE, receipt, error=_error(error))

    def owners(self, owner: Params) -> set[tuple[int, int | None]]:
        """Return the processes of this host that have open replies, by id and start time."""
        if not self._is_complete():
            return set()
        return {(row[0], row[1]) for row in self.tx.all(OWNERS, owner)}

    def sweep_recoverable(
        self,
        owner: Params,
        gone: Collection[str],
        now: float | None,
        platforms: Collection[str] | None,
        targets: Collection[tuple[str, str]] | None,
    ) -> list[ClaimedObligation]:
        """Take over the open replies of owners that are dead, but for those nobody can send now."""
        self._establish()
        moment = _moment(now)
        search = {**owner, "gone": text_list(gone), **moment}
        lost, adopted, claimed = [], [], []
        for row in self.tx.all(orphaned(self.tx.dialect.is_on_one_host), search):
            found = Obligation(*row)
            if found.is_lost(moment["now"]):
                lost.append(found)
            elif not _is_deliverable(found, platforms, targets):
                continue
            elif (found.refused_until() or 0.0) > moment["now"]:
                adopted.append(found)
            else:
                claimed.append(found)
        self._take(ABANDON, lost, moment)
        self._take(ADOPT, adopted, {**owner, **moment})
        self._take(CLAIM, claimed, {**owner, **moment})
        return [_claimed(each, adopted=each in adopted) for each in adopted + claimed]

    def sweep_failed(
        self, owner: Params, platform: str, now: float | None, profile: str | None
    ) -> list[ClaimedObligation]:
        """Take the replies that the owner itself failed to send, and may try again now."""
        self._establish()
        moment = _moment(now)
        search = {**owner, "platform": lookup_key(platform), "profile": lookup_key(profile)}
        rows = self.tx.all(own_failed(profile is not None), search)
        found = [Obligation(*row) for row in rows]
        due = [
            each
            for each in found
            if (when := each.not_before(moment["now"])) is not None and when <= moment["now"]
        ]
        self._take(CLAIM, due, {**owner, **moment})
        return [{**_claimed(each, marked=True), "runtime_recovery": True} for each in due]

    def pending_retries(self, owner: Params, now: float | None) -> list[PendingRetry]:
        """Return for each platform and profile when the owner may first try again."""
        if not self._is_complete():
            return []
        moment = _moment(now)["now"]
        earliest: dict[tuple[str, str], float] = {}
        for row in self.tx.all(OWN_FAILED, owner):
            found = Obligation(*row)
            when = found.not_before(moment)
            key = (found.platform, found.profile)
            if when is not None and when <= earliest.get(key, when):
                earliest[key] = when
        return [
            {"platform": platform, "profile": profile, "not_before": when}
            for (platform, profile), when in sorted(earliest.items())
        ]

    def _establish(self) -> None:
        self.tx.dialect.on_demand.establish(self.tx, _TABLE)

    def _is_complete(self) -> bool:
        found = self.tx.dialect.on_demand.columns(self.tx, _TABLE)
        return found is not None and found.issuperset(_TABLE.columns.keys())

    def _changed(self, statement: Prepared, receipt: DeliveryReceipt, **more: Any) -> bool:
        self._establish()
        obligation_id, fence = receipt
        this = {"obligation_id": lookup_key(obligation_id), "fence": int(fence)}
        return self.tx.first(statement, {**this, **more, **_moment(None)}) is not None

    def _take(self, statement: Prepared, found: Sequence[Obligation], params: Params) -> None:
        """Change rows that this transaction has locked."""
        rows = [
            {**params, "obligation_id": each.obligation_id, "fence": each.fence} for each in found
        ]
        if rows:
            self.tx.run_many(statement, rows)


def compute_obligation_id(session_key: str, message_ref: str, content: str) -> str:
    """Return the id of a reply: the same for the same reply to the same message."""
    text = f"{session_key}|{message_ref}|{content}"
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:24]


def _moment(now: float | None) -> dict[str, float]:
    """Return the time by which replies are judged, and that by which leases are."""
    current = clock.now()
    return {"now": current if now is None else float(now), "clock": current}


def _error(error: str) -> str | None:
    return (session_text(error) or "")[:MAX_ERROR_LENGTH] or None


def _is_deliverable(
    found: Obligation,
    platforms: Collection[str] | None,
    targets: Collection[tuple[str, str]] | None,
) -> bool:
    if platforms is not None and found.platform not in platforms:
        return False
    return targets is None or (found.platform, found.profile) in targets


def _claimed(
    found: Obligation, *, adopted: bool = False, marked: bool = False
) -> ClaimedObligation:
    needs_marker = marked or not found.is_untouched
    claimed: ClaimedObligation = {
        "obligation_id": found.obligation_id,
        "receipt": DeliveryReceipt(found.obligation_id, found.fence + 1),
        "session_key": found.session_key,
        "platform": found.platform,
        "chat_id": found.chat_id,
        "thread_id": found.thread_id,
        "content": found.content,
        "needs_marker": needs_marker,
        "profile": found.profile,
        "attempts": found.attempts + (not adopted),
    }
    if needs_marker:
        claimed["marker"] = MARKER
    if found.last_error:
        claimed["last_error"] = found.last_error
    not_before = found.refused_until() if adopted else None
    if not_before is not None:
        claimed |= {"adopted": True, "not_before": not_before}
    return claimed
