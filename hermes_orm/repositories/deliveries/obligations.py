"""Replies that the gateway owes: what was promised, who sends it, and what became of it."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from typing import Any, Final, cast

from sqlalchemy import Table

from hermes_orm import clock
from hermes_orm.arguments import real_number, stored_number
from hermes_orm.delivery_rows import ClaimedObligation, DeliveryReceipt, PendingRetry
from hermes_orm.dialects import Prepared
from hermes_orm.dialects.expressions import text_list
from hermes_orm.dialects.prepared import Params
from hermes_orm.models import DeliveryObligation
from hermes_orm.repositories.base import Repository
from hermes_orm.repositories.deliveries import obligation_statements as statements
from hermes_orm.repositories.deliveries.attempts import MARKER, Obligation
from hermes_orm.session_text import lookup_key, session_text

MAX_ERROR_LENGTH: Final = 500
_TABLE: Final = cast(Table, DeliveryObligation.__table__)


class ObligationRepository(Repository):
    """Rows of `delivery_obligations`. An owner is given as `Process.params()`."""

    def record(self, owner: Params, reply: Params) -> DeliveryReceipt:
        """Record a reply before it is sent, unless it is known; return its receipt."""
        self._establish()
        reply = {**owner, **reply, **_moment(None)}
        if self.tx.first(statements.RECORD, reply) is not None:
            self.tx.run(statements.PRUNE, reply)
        return DeliveryReceipt(reply["obligation_id"], self.tx.scalar(statements.FENCE, reply))

    def adopt_reply(self, reply: Params) -> bool:
        """Record a reply that may have been sent, for the next sweep; False when it is known."""
        self._establish()
        reply = {**reply, **_moment(None)}
        if self.tx.first(statements.RECORDED_SINCE, reply) or not self.tx.first(
            statements.ADOPT_REPLY, reply
        ):
            return False
        self.tx.run(statements.PRUNE, reply)
        return True

    def begin(self, owner: Params, receipt: DeliveryReceipt) -> DeliveryReceipt | None:
        """Take a reply that nobody has begun to send; None when somebody has."""
        if not self._changed(statements.BEGIN, receipt, **owner):
            return None
        return DeliveryReceipt(receipt[0], stored_number(receipt[1], "the fence of a receipt") + 1)

    def mark_delivered(self, receipt: DeliveryReceipt) -> bool:
        """Record that a reply was sent; False when somebody else has taken it over."""
        return self._changed(statements.DELIVER, receipt)

    def mark_failed(self, receipt: DeliveryReceipt, error: str = "") -> bool:
        """Record that a reply was not sent; False when somebody else has taken it over.

        Of the error, 500 characters are kept. `flood_control:<seconds>` says how long to wait.
        """
        return self._changed(statements.FAIL, receipt, error=_error(error))

    def release_runtime_claim(self, receipt: DeliveryReceipt, error: str = "") -> bool:
        """Give back a reply that was claimed and never sent: that was no attempt.

        False when somebody else has taken it over. Without an error, the latest one stays.
        """
        return self._changed(statements.RELEASE, receipt, error=_error(error))

    def owners(self, owner: Params) -> set[tuple[int, int | None]]:
        """Return the processes of this host that have open replies, by id and start time."""
        self._establish()
        rows = self.tx.all(statements.owners(self.tx.dialect.is_on_one_host), owner)
        return {(row[0], row[1]) for row in rows}

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
        for row in self.tx.all(statements.orphaned(self.tx.dialect.is_on_one_host), search):
            found = Obligation(*row)
            if found.is_lost(moment["now"]):
                lost.append(found)
            elif not _is_deliverable(found, platforms, targets):
                continue
            elif (found.refused_until() or 0.0) > moment["now"]:
                adopted.append(found)
            else:
                claimed.append(found)
        self._take(statements.ABANDON, lost, moment)
        self._take(statements.ADOPT, adopted, {**owner, **moment})
        self._take(statements.CLAIM, claimed, {**owner, **moment})
        return [*(_claimed(each, adopted=True) for each in adopted), *map(_claimed, claimed)]

    def sweep_failed(
        self, owner: Params, platform: str, now: float | None, profile: str | None
    ) -> list[ClaimedObligation]:
        """Take the replies that the owner itself failed to send, and may try again now."""
        self._establish()
        moment = _moment(now)
        search = {**owner, "platform": lookup_key(platform), "profile": lookup_key(profile)}
        rows = self.tx.all(statements.own_failed(profile is not None), search)
        found = [Obligation(*row) for row in rows]
        due = [
            each
            for each in found
            if (when := each.not_before(moment["now"])) is not None and when <= moment["now"]
        ]
        self._take(statements.CLAIM, due, {**owner, **moment})
        return [{**_claimed(each, marked=True), "runtime_recovery": True} for each in due]

    def pending_retries(self, owner: Params, now: float | None) -> list[PendingRetry]:
        """Return for each platform and profile when the owner may first try again."""
        if not self._is_complete():
            return []
        moment = _moment(now)["now"]
        earliest: dict[tuple[str, str], float] = {}
        for row in self.tx.all(statements.OWN_FAILED, owner):
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
        this = {
            "obligation_id": lookup_key(obligation_id),
            "fence": stored_number(fence, "the fence of a receipt"),
        }
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
    return {"now": current if now is None else real_number(now, "now"), "clock": current}


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
