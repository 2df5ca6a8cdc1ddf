"""Deadlines of leases on SQLite, where the clock is the host's."""

import asyncio
from typing import Any

import pytest

DEADLINES = "SELECT acquired_at, expires_at FROM session_turn_leases"


@pytest.fixture
def location(make_location: Any) -> str:
    """A fresh file."""
    path: str = make_location("sqlite")
    return path


async def test_lock_lasts_through_its_last_moment(db: Any, clock: Any) -> None:
    await db.try_acquire_compression_lock("s", "A", 10)
    clock.advance(10)
    assert await db.get_compression_lock_holder("s") == "A"
    assert await db.try_acquire_compression_lock("s", "B") is False
    clock.advance(0.001)
    assert await db.get_compression_lock_holder("s") is None
    assert await db.try_acquire_compression_lock("s", "B") is True


async def test_turn_is_over_at_its_deadline(db: Any, clock: Any) -> None:
    await db.try_acquire_session_turn_lease("s", "A", ttl_seconds=10)
    clock.advance(9.999)
    assert await db.try_acquire_session_turn_lease("s", "B") is False
    clock.advance(0.001)
    assert await db.try_acquire_session_turn_lease("s", "B") is True


async def test_waiting_for_the_file_does_not_shorten_a_lease(db: Any, raw: Any, clock: Any) -> None:
    await db.get_session("s")
    with raw.engine.connect() as connection:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        acquiring = asyncio.create_task(db.try_acquire_session_turn_lease("s", "A", ttl_seconds=10))
        await asyncio.sleep(0.1)
        clock.advance(7)
        connection.rollback()
    assert await acquiring is True
    [(acquired_at, expires_at)] = await raw.fetch(DEADLINES)
    assert (acquired_at, expires_at) == (clock.time, clock.time + 10)
