"""What a session remembers of failed compressions: messages.md sections 14 and 19."""

from typing import Any

import pytest


async def test_cooldown_lasts_until_its_end(db: Any, clock: Any, session: str) -> None:
    assert await db.get_compression_failure_cooldown(session) is None
    await db.record_compression_failure_cooldown(session, clock.time + 100, "err")
    expected = {"cooldown_until": clock.time + 100, "remaining_seconds": 100.0, "error": "err"}
    assert await db.get_compression_failure_cooldown(session) == expected
    clock.advance(99)
    found = await db.get_compression_failure_cooldown(session)
    assert found["remaining_seconds"] == pytest.approx(1)
    clock.advance(1)
    assert await db.get_compression_failure_cooldown(session) is None
    await db.record_compression_failure_cooldown(session, clock.time + 5)
    assert (await db.get_compression_failure_cooldown(session))["error"] is None
    await db.clear_compression_failure_cooldown(session)
    row = {"session_exists": True, "cooldown_until": None, "error": None}
    assert await db.get_compression_failure_cooldown_row(session) == row


async def test_snapshot_is_restored_exactly(db: Any, clock: Any, session: str) -> None:
    unset = await db.get_compression_failure_cooldown_row(session)
    await db.record_compression_failure_cooldown(session, clock.time + 100.125, "err")
    snapshot = await db.get_compression_failure_cooldown_row(session)
    until = clock.time + 100.125
    assert snapshot == {"session_exists": True, "cooldown_until": until, "error": "err"}
    await db.record_compression_failure_cooldown(session, clock.time - 1)
    assert await db.get_compression_failure_cooldown(session) is None
    row = await db.get_compression_failure_cooldown_row(session)
    assert row["cooldown_until"] == clock.time - 1
    for earlier in (snapshot, unset):
        await db.restore_compression_failure_cooldown_row(session, earlier)
        assert await db.get_compression_failure_cooldown_row(session) == earlier


async def test_snapshot_of_another_state_is_refused(db: Any, session: str) -> None:
    restore = db.restore_compression_failure_cooldown_row
    await db.record_compression_failure_cooldown(session, 5, "err")
    before = await db.get_compression_failure_cooldown_row(session)
    missing = {"session_exists": False, "cooldown_until": None, "error": None}
    assert await db.get_compression_failure_cooldown_row("nope") == missing
    for absent in ({"session_exists": False}, {}):
        with pytest.raises(RuntimeError, match="session now exists"):
            await restore(session, absent)
        assert await restore("nope", absent) is None
    with pytest.raises(RuntimeError, match="session missing"):
        await restore("nope", before)
    with pytest.raises(RuntimeError, match="verification failed"):
        await restore(session, {**before, "error": "what cannot be stored: \x00"})
    assert await db.get_compression_failure_cooldown_row(session) == before


@pytest.mark.parametrize("until", ["soon", float("nan")])
async def test_cooldown_needs_a_time(db: Any, session: str, until: Any) -> None:
    with pytest.raises(ValueError, match=r"float|NaN"):
        await db.record_compression_failure_cooldown(session, until)


@pytest.mark.parametrize("name", ["fallback_streak", "ineffective_count"])
async def test_counters(db: Any, raw: Any, session: str, name: str) -> None:
    get = getattr(db, f"get_compression_{name}")
    store = getattr(db, f"set_compression_{name}")
    assert await get(session) == 0
    for value, stored in ((3, 3), (-2, 0), ("4", 4), (2.9, 2)):
        assert await store(session, value) is None
        assert await get(session) == stored
    for garbage, error in (("x", ValueError), (None, TypeError)):
        with pytest.raises(error):
            await store(session, garbage)
    await raw.execute(f"UPDATE sessions SET compression_{name} = -7")
    assert await get(session) == 0


@pytest.mark.parametrize("session_id", ["nope", "", None, "n\x00"])
async def test_unknown_sessions_remember_nothing(db: Any, session_id: Any) -> None:
    await db.record_compression_failure_cooldown(session_id, 9e9, "err")
    await db.clear_compression_failure_cooldown(session_id)
    await db.set_compression_fallback_streak(session_id, 3)
    await db.set_compression_ineffective_count(session_id, 3)
    assert await db.get_compression_failure_cooldown(session_id) is None
    assert await db.get_compression_fallback_streak(session_id) == 0
    assert await db.get_compression_ineffective_count(session_id) == 0
