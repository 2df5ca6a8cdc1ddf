"""Leases that are acquired in several transactions, or whose failures are not the caller's."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from sqlalchemy.exc import SQLAlchemyError

from hermes_orm.arguments import waiting_time
from hermes_orm.completion import to_completion
from hermes_orm.database import ACTIVITY_PATIENCE, DEFAULT_PATIENCE, Database
from hermes_orm.error_causes import classify_persistence_error
from hermes_orm.repositories.compression.leases import (
    COMPRESSION_LOCK,
    TURN_LEASE,
    Lease,
    LeaseRepository,
    turn_ttl,
)
from hermes_orm.services.processes import is_gone

T = TypeVar("T")

SHORTEST_POLL_SECONDS = 0.01

logger = logging.getLogger(__name__)


async def try_acquire_compression_lock(
    database: Database, session_id: str, holder: str, ttl_seconds: float = 300.0
) -> bool:
    """Take the right to compress a session; True when `holder` has it now.

    It ends after `ttl_seconds`; who has it already keeps it at least that long. On SQLite it also
    ends with the process that the holder's text names: `pid=123` between colons. False, with a
    warning, when the database fails.
    """
    if not session_id or not holder:
        return False
    acquired = _acquired(database, COMPRESSION_LOCK, session_id, holder, ttl_seconds)
    return await _or(False, "acquired", session_id, acquired)


async def refresh_compression_lock(
    database: Database, session_id: str, holder: str, ttl_seconds: float = 300.0
) -> bool:
    """Let the holder's lock end in `ttl_seconds`, also one that is over.

    False when the holder has none and, with a warning, when the database fails.
    """
    refreshed = database.write(
        lambda tx: LeaseRepository(tx).refresh_compression_lock(session_id, holder, ttl_seconds),
        scope="statement",
    )
    return await _or(False, "refreshed", session_id, refreshed)


async def release_compression_lock(database: Database, session_id: str, holder: str) -> None:
    """Give the lock back, if it is the holder's; a failure of the database is only logged."""
    released = database.write(
        lambda tx: LeaseRepository(tx).release_compression_lock(session_id, holder),
        scope="statement",
    )
    await _or(None, "released", session_id, released)


async def try_acquire_session_turn_lease(
    database: Database,
    session_id: str,
    holder: str,
    *,
    ttl_seconds: float = 300.0,
    patience_s: float | None = None,
) -> bool:
    """Take the turn in a conversation, of which `session_id` is any segment.

    True when `holder` has the lease now; it lasts at least `ttl_seconds`, and at least 0.1. On
    SQLite it also ends with the process that the holder's text names: `pid=123` between colons.
    `patience_s` limits the wait for other writers, not for the lease.
    """
    if not session_id or not holder:
        return False
    seconds = DEFAULT_PATIENCE if patience_s is None else waiting_time(patience_s, "patience_s")
    return await _acquired(database, TURN_LEASE, session_id, holder, turn_ttl(ttl_seconds), seconds)


async def acquire_session_turn_lease(
    database: Database,
    session_id: str,
    holder: str,
    *,
    ttl_seconds: float = 300.0,
    wait_seconds: float = 1800.0,
    poll_interval_seconds: float = 1.0,
    on_wait: Callable[[float], object] | None = None,
    wait_notice_interval_seconds: float = 15.0,
    should_abort: Callable[[], object] | None = None,
    acquire_patience_s: float = ACTIVITY_PATIENCE,
) -> bool:
    """Wait up to `wait_seconds` for the turn in a conversation; True when `holder` has it.

    Before each try, `should_abort()` may end the wait. `on_wait(seconds)` is called after the
    first try that fails, and then each `wait_notice_interval_seconds`. Errors of both are logged.
    Nothing is held while waiting.
    """
    if not session_id or not holder:
        return False
    seconds = waiting_time(acquire_patience_s, "acquire_patience_s")
    loop = asyncio.get_running_loop()
    began = loop.time()
    notice_after = 0.0
    while not (should_abort and _called(should_abort)):
        try:
            if await try_acquire_session_turn_lease(
                database,
                session_id,
                holder,
                ttl_seconds=ttl_seconds,
                patience_s=seconds,
            ):
                return True
        except asyncio.CancelledError:  # it may have been committed
            await to_completion(_given_back(database, session_id, holder, seconds))
            raise
        except Exception as error:
            if classify_persistence_error(error) != "locked":
                raise
        waited = loop.time() - began
        left = wait_seconds - waited
        if left <= 0:
            break
        if on_wait and waited >= notice_after:
            _called(on_wait, waited)
            notice_after = waited + wait_notice_interval_seconds
        await asyncio.sleep(min(max(SHORTEST_POLL_SECONDS, poll_interval_seconds), left))
    return False


async def _acquired(
    database: Database,
    lease: Lease,
    session_id: str,
    holder: str,
    ttl_seconds: float,
    patience: float = DEFAULT_PATIENCE,
) -> bool:
    """Try to take a lease; a second time if the process that has it is gone."""

    async def tried(gone: str | None) -> bool:
        return await database.write(
            lambda tx: LeaseRepository(tx).acquire(lease, session_id, holder, ttl_seconds, gone),
            scope="statement",
            patience=patience,
            alone=patience <= ACTIVITY_PATIENCE,
        )

    if await tried(gone=None):
        return True
    if not database.dialect.is_on_one_host:
        return False
    other = await database.read(
        lambda tx: LeaseRepository(tx).holder(lease, session_id), scope="statement"
    )
    return other is not None and is_gone(other) and await tried(gone=other)


async def _given_back(database: Database, session_id: str, holder: str, patience: float) -> None:
    with suppress(Exception):
        await database.write(
            lambda tx: LeaseRepository(tx).release_session_turn_lease(session_id, holder),
            scope="statement",
            patience=patience,
            alone=True,
        )


async def _or(default: T, done: str, session_id: str, call: Awaitable[T]) -> T:
    """Await `call`; return `default`, with a warning, when the database fails."""
    try:
        return await call
    except (sqlite3.Error, SQLAlchemyError, OSError) as error:
        logger.warning("the compression lock of %r was not %s: %s", session_id, done, error)
        return default


def _called(callback: Callable[..., object], *args: object) -> object:
    """Return what a callback of the caller answers; None when it fails."""
    try:
        return callback(*args)
    except Exception:
        logger.exception("a callback of acquire_session_turn_lease failed")
        return None
