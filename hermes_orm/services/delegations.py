"""Background delegations: processes that work on them, end, and hand their results over."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import sqlite3
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from sqlalchemy.exc import SQLAlchemyError

from hermes_orm.arguments import mapping
from hermes_orm.codec import plain_text
from hermes_orm.completion import to_completion
from hermes_orm.database import Database
from hermes_orm.dialects import Prepared
from hermes_orm.dialects.delegations import owner_key
from hermes_orm.repositories.deliveries import delegation_statements
from hermes_orm.repositories.deliveries import delegations as repository
from hermes_orm.repositories.deliveries.delegations import DelegationRepository
from hermes_orm.rows import JsonObject
from hermes_orm.services.processes import is_ended, this_process
from hermes_orm.session_text import session_text, stored_key

logger = logging.getLogger(__name__)


class EventQueue(Protocol):
    """A queue of `queue` or `asyncio`."""

    def put_nowait(self, item: Any, /) -> Any:
        """Add an item."""


_restored: WeakKeyDictionary[EventQueue, set[str]] = WeakKeyDictionary()


async def record_delegation_dispatch(
    database: Database,
    delegation_id: str,
    origin_session: str,
    task: Mapping[str, Any],
    *,
    origin_ui_session_id: str = "",
    origin_session_id: str = "",
    parent_session_id: str | None = None,
) -> None:
    """Record that this process starts a task; a delegation of that id starts anew.

    Of the task, `goal`, `goals`, `context`, `toolsets`, `role`, `model` and `is_batch` are kept.
    Results that are delivered are forgotten after 7 days; at most 50 delivered or dropped ones are
    kept, and 1,000 that still wait. Raises ValueError for an id that cannot be stored.
    """
    given = {
        "delegation_id": repository.delegation_key(delegation_id),
        "origin_session": stored_key(origin_session, "origin_session"),
        "origin_ui_session_id": session_text(origin_ui_session_id) or "",
        "origin_session_id": session_text(origin_session_id) or "",
        "parent_session_id": session_text(parent_session_id),
        "task_json": repository.task_json(task),
    }
    owner = this_process().params()
    await database.write(lambda tx: DelegationRepository(tx).dispatch(owner, given))


async def renew_delegation_leases(database: Database) -> None:
    """Say that this process still works on its delegations; due each 30 seconds, over after 180.

    On SQLite that is known by the process itself. A failure of the database is a warning.
    """
    owner = this_process().params()
    try:
        await database.write(lambda tx: DelegationRepository(tx).renew(owner), scope="statement")
    except (sqlite3.Error, SQLAlchemyError, OSError) as error:
        logger.warning("the leases of background delegations were not renewed: %s", error)


async def record_delegation_completion(
    database: Database, evt: Mapping[str, Any], result: Any
) -> bool:
    """Store how a task ended, for its delivery: state is the `status` of the event.

    False, with nothing changed, when the delegation is not this process's any more, or has ended:
    then the event must not be published. Raises ValueError for an event without `delegation_id`.
    """
    outcome = {
        "delegation_id": repository.delegation_key(mapping(evt, "evt").get("delegation_id")),
        "state": session_text(evt.get("status")) or "completed",
        "event_json": repository.encoded(dict(evt)),
        "result_json": None if result is None else repository.encoded(result),
    }
    owner = this_process().params()
    return await database.complete(lambda tx: DelegationRepository(tx).complete(owner, outcome))


async def recover_abandoned_delegations(database: Database) -> int:
    """End delegations as `unknown` whose process is gone; return how many there were.

    Their events and results say so, and wait for delivery. On PostgreSQL a process is gone when
    its lease is over.
    """
    gone: list[str] = []
    if database.dialect.is_on_one_host:
        owners = await database.read(lambda tx: DelegationRepository(tx).owners())
        gone = [owner_key(*owner) for owner in owners if is_ended(*owner)]
    return await database.complete(lambda tx: DelegationRepository(tx).recover(gone))


async def restore_undelivered_completions(database: Database, target_queue: EventQueue) -> int:
    """Put every event that waits for delivery into a queue, in the order of completion.

    Abandoned delegations are recovered before. Each event has `restored: True` then. Returns how
    many there were; a queue gets them once from a database, 0 is returned after that.
    """
    if not callable(getattr(target_queue, "put_nowait", None)):
        raise TypeError(f"target_queue must be a queue, not {type(target_queue).__name__}")
    served = _restored.setdefault(target_queue, set())
    name = str(database.location)
    if name in served:
        return 0
    served.add(name)
    try:
        await recover_abandoned_delegations(database)
        found = await database.read(lambda tx: DelegationRepository(tx).undelivered())
        events = [_restorable(*row) for row in found if isinstance(row[1], dict)]
        for event in events:
            target_queue.put_nowait(event)
    except BaseException:
        served.discard(name)
        raise
    if unreadable := len(found) - len(events):
        logger.warning("%d events of background delegations are unreadable", unreadable)
    return len(events)


async def claim_completion_delivery(database: Database, delegation_id: str, claim_id: str) -> bool:
    """Take the right to deliver a result; one of several callers gets it.

    A claim is over after 300 seconds. True for an unknown id, too: nothing is to be protected.
    """
    try:
        return await database.complete(
            lambda tx: DelegationRepository(tx).claim(delegation_id, claim_id)
        )
    except asyncio.CancelledError:  # the claim may have been won
        with suppress(Exception):
            await to_completion(release_completion_delivery(database, delegation_id, claim_id))
        raise


async def claim_event_delivery(
    database: Database, evt: Mapping[str, Any], consumer: str
) -> str | None:
    """Take the right to deliver an event; return the claim, or None when another has it.

    `""` for an event that is not of a background delegation and needs none.
    """
    delegation_id = mapping(evt, "evt").get("delegation_id")
    if evt.get("type") != repository.EVENT_TYPE or not delegation_id:
        return ""
    claim_id = f"{plain_text(consumer)}:{os.getpid()}:{secrets.token_hex(8)}"
    won = await claim_completion_delivery(database, delegation_id, claim_id)
    return claim_id if won else None


async def release_completion_delivery(
    database: Database, delegation_id: str, claim_id: str
) -> bool:
    """Give a claim back after a delivery that failed; False when the caller has none.

    After 8 attempts the result is dropped: nobody gets a claim on it any more.
    """
    return await _passed(database, delegation_statements.RELEASE, delegation_id, claim_id)


async def drop_completion_delivery(database: Database, delegation_id: str, claim_id: str) -> bool:
    """Give up delivering a result; False when the caller has no claim on it."""
    return await _passed(database, delegation_statements.DROP, delegation_id, claim_id)


async def complete_completion_delivery(
    database: Database, delegation_id: str, claim_id: str
) -> bool:
    """Record that a result is delivered; False when the caller has no claim on it."""
    return await _passed(database, delegation_statements.COMPLETE, delegation_id, claim_id)


async def mark_completion_delivered(database: Database, delegation_id: str) -> bool:
    """Record that a result is delivered, whoever did it; False when that, or nothing, is known."""
    return await _passed(database, delegation_statements.DELIVER, delegation_id, None)


async def _passed(
    database: Database, transition: Prepared, delegation_id: str, claim_id: str | None
) -> bool:
    return await database.complete(
        lambda tx: DelegationRepository(tx).held(transition, delegation_id, claim_id)
    )


def _restorable(delegation_id: str, event: JsonObject) -> JsonObject:
    return {
        "type": repository.EVENT_TYPE,
        "delegation_id": delegation_id,
        **event,
        "restored": True,
    }
