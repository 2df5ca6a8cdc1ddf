"""The ledger of replies, as this process uses it: record, send, report; and what is left over."""

from __future__ import annotations

from collections.abc import Collection

from hermes_orm.arguments import real_number
from hermes_orm.database import Database
from hermes_orm.delivery_rows import ClaimedObligation, DeliveryReceipt, PendingRetry
from hermes_orm.dialects.delegations import owner_key
from hermes_orm.dialects.prepared import Params
from hermes_orm.repositories.deliveries.attempts import DEFAULT_PROFILE
from hermes_orm.repositories.deliveries.obligations import ObligationRepository
from hermes_orm.services.processes import is_ended, this_process
from hermes_orm.session_text import indexed_text, session_text, stored_key


async def record_obligation(
    database: Database,
    *,
    obligation_id: str,
    session_key: str,
    platform: str,
    chat_id: str,
    thread_id: str | None,
    content: str,
    adapter_profile: str | None = None,
) -> DeliveryReceipt:
    """Record a reply before anything is sent; return the receipt for `mark_attempting`.

    A reply that is recorded stays as it is. At most 500 replies are kept, those that were delivered
    or given up for 7 days. Raises ValueError for an id or a key that cannot be stored.
    """
    reply = _reply(obligation_id, session_key, platform, chat_id, thread_id, content)
    profile = indexed_text(adapter_profile, "adapter profile") or DEFAULT_PROFILE
    reply = {**reply, "adapter_profile": profile}
    owner = this_process().params()
    return await database.write(lambda tx: ObligationRepository(tx).record(owner, reply))


async def mark_attempting(database: Database, receipt: DeliveryReceipt) -> DeliveryReceipt | None:
    """Take a reply to send it at once; return the receipt to report with.

    None when somebody else has taken it: then it must not be sent.
    """
    owner = this_process().params()
    return await database.write(lambda tx: ObligationRepository(tx).begin(owner, receipt))


async def record_crash_left_reply(
    database: Database,
    *,
    obligation_id: str,
    session_key: str,
    platform: str,
    chat_id: str,
    thread_id: str | None,
    content: str,
    since: float,
    adapter_profile: str | None = None,
) -> bool:
    """Record a reply that was stored and perhaps sent by a process that has crashed since.

    Nobody owns it: `sweep_recoverable` takes it. False, with nothing changed, when it is recorded,
    or the same text has been recorded for the session since then.
    """
    reply = _reply(obligation_id, session_key, platform, chat_id, thread_id, content)
    profile = indexed_text(adapter_profile, "adapter profile") or DEFAULT_PROFILE
    reply = {**reply, "adapter_profile": profile, "since": real_number(since, "since")}
    return await database.write(lambda tx: ObligationRepository(tx).adopt_reply(reply))


async def sweep_recoverable(
    database: Database,
    now: float | None = None,
    *,
    deliverable_platforms: Collection[str] | None = None,
    deliverable_targets: Collection[tuple[str, str]] | None = None,
) -> list[ClaimedObligation]:
    """Take over the replies that processes which are dead have left, to send each now.

    Of several callers, one gets a reply. `deliverable_platforms`, and `deliverable_targets`, pairs
    of platform and profile, say what can be sent; others stay as they are. After 3 attempts or 24
    hours a reply is given up. One that a platform has refused for a while is `adopted`: it is due
    at `not_before`, by `sweep_failed_for_runtime`. On PostgreSQL, owners on other hosts are dead
    when their lease is over.
    """
    owner = this_process().params()
    owners = await database.write(lambda tx: ObligationRepository(tx).owners(owner))
    gone = [owner_key(*each) for each in owners if is_ended(*each)]
    targets = None if deliverable_targets is None else {(p, q) for p, q in deliverable_targets}
    return await database.write(
        lambda tx: ObligationRepository(tx).sweep_recoverable(
            owner, gone, now, deliverable_platforms, targets
        )
    )


async def sweep_failed_for_runtime(
    database: Database, platform: str, now: float | None = None, *, profile: str | None = None
) -> list[ClaimedObligation]:
    """Take the replies that this process itself failed to send and that are due, to send them.

    They are due after 30 seconds and after 120 more, or when the platform allows it again; those
    of one `profile`, or of all. The last attempt is left to the next start.
    """
    owner = this_process().params()
    return await database.write(
        lambda tx: ObligationRepository(tx).sweep_failed(owner, platform, now, profile)
    )


async def pending_retries(database: Database, now: float | None = None) -> list[PendingRetry]:
    """Return for each platform and profile when `sweep_failed_for_runtime` first finds some."""
    owner = this_process().params()
    return await database.read(lambda tx: ObligationRepository(tx).pending_retries(owner, now))


def _reply(
    obligation_id: str,
    session_key: str,
    platform: str,
    chat_id: str,
    thread_id: str | None,
    content: str,
) -> Params:
    return {
        "obligation_id": stored_key(obligation_id, "obligation id"),
        "session_key": stored_key(session_key, "session key"),
        "platform": stored_key(platform, "platform"),
        "chat_id": stored_key(chat_id, "chat id"),
        "thread_id": session_text(thread_id),
        "content": session_text(content) or "",
    }
