"""The ledger of replies: one owner at a time, no reply lost, doubtful ones marked."""

import hashlib
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from hermes_orm import DeliveryReceipt, compute_obligation_id

HOUR = 3_600.0
DAY = 24 * HOUR
REPLY = {
    "session_key": "k",
    "platform": "telegram",
    "chat_id": "1",
    "thread_id": None,
    "content": "hi",
}
KEYS = {
    "obligation_id",
    "receipt",
    "session_key",
    "platform",
    "chat_id",
    "thread_id",
    "content",
    "needs_marker",
    "profile",
    "attempts",
}


async def owe(db: Any, obligation_id: str, **more: Any) -> DeliveryReceipt:
    receipt: DeliveryReceipt = await db.record_obligation(
        obligation_id=obligation_id, **{**REPLY, **more}
    )
    return receipt


async def fail(db: Any, obligation_id: str, error: str, **more: Any) -> DeliveryReceipt:
    """A reply whose first attempt has failed."""
    receipt: DeliveryReceipt = await db.mark_attempting(await owe(db, obligation_id, **more))
    assert await db.mark_failed(receipt, error)
    return receipt


async def crash(raw: Any, *ids: str) -> None:
    """Have the owner of replies, or of all replies, be a process of this host that has ended."""
    process = subprocess.Popen(["true"])  # noqa: ASYNC220
    process.wait()
    for each in ids or (None,):
        await raw.execute(
            "UPDATE delivery_obligations SET owner_pid = ?"
            " WHERE obligation_id = ? OR CAST(? AS text) IS NULL",
            process.pid,
            each,
            each,
        )


async def states(raw: Any) -> dict[str, tuple[str, int, int]]:
    rows = await raw.fetch(
        "SELECT obligation_id, state, attempts, delivery_fence FROM delivery_obligations"
    )
    return {row[0]: row[1:] for row in rows}


def test_id_of_a_reply_is_that_of_its_text() -> None:
    digest = hashlib.sha256(b"k|m|text?").hexdigest()
    first = compute_obligation_id("k", "m", "text\ud800")
    assert first == compute_obligation_id("k", "m", "text?") == digest[:24]


async def test_crash_between_checkpoints_is_recovered(db: Any, raw: Any) -> None:
    # usage 9.38
    receipt = await owe(db, "o")
    assert receipt == ("o", 0)
    sending = await db.mark_attempting(receipt)
    assert sending == ("o", 1)
    assert await db.mark_attempting(receipt) is None
    assert not await db.mark_delivered(receipt)
    assert await db.sweep_recoverable() == []  # its owner is alive
    await crash(raw)
    (row,) = await db.sweep_recoverable()
    assert (row["needs_marker"], row["attempts"], row["receipt"]) == (True, 1, ("o", 2))
    assert row.keys() == KEYS | {"marker"}
    assert await db.sweep_recoverable() == []
    assert not await db.mark_delivered(sending)  # by whoever had it before
    assert await db.mark_delivered(row["receipt"])
    assert not await db.mark_failed(row["receipt"])
    assert await states(raw) == {"o": ("delivered", 1, 2)}


async def test_recorded_reply_stays_as_it_is(db: Any, raw: Any) -> None:
    receipt = await db.mark_attempting(await owe(db, "o", adapter_profile="work"))
    assert await owe(db, "o", content="another") == ("o", 1)
    assert await raw.fetch("SELECT content, adapter_profile FROM delivery_obligations") == [
        ("hi", "work")
    ]
    assert await db.mark_delivered(receipt)
    assert await db.mark_attempting(await owe(db, "o")) is None
    for wrong in ("", "o\x00"):
        with pytest.raises(ValueError, match=r"session key|obligation id"):
            await owe(db, "o\ud800", session_key=wrong)


async def test_untouched_reply_needs_no_marker(db: Any, raw: Any) -> None:
    await owe(db, "o", thread_id="7", adapter_profile="work")
    await crash(raw)
    (row,) = await db.sweep_recoverable()
    assert row == {
        **REPLY,
        "thread_id": "7",
        "obligation_id": "o",
        "receipt": ("o", 1),
        "needs_marker": False,
        "profile": "work",
        "attempts": 1,
    }


async def test_claim_that_was_never_sent_is_no_attempt(db: Any, raw: Any, clock: Any) -> None:
    receipt = await fail(db, "o", "boom " * 200)
    clock.advance(31)
    (row,) = await db.sweep_failed_for_runtime("telegram")
    assert (row["attempts"], row["last_error"]) == (1, ("boom " * 200)[:500])
    assert not await db.release_runtime_claim(receipt)
    assert await db.release_runtime_claim(row["receipt"])
    assert not await db.release_runtime_claim(row["receipt"])
    assert await states(raw) == {"o": ("failed", 0, 2)}
    stored = await raw.fetch("SELECT last_error, lease_expires_at FROM delivery_obligations")
    assert stored == [(("boom " * 200)[:500], None)]


async def test_reply_of_a_crash_is_adopted_once(db: Any, raw: Any, clock: Any) -> None:
    await owe(db, "o")
    left = {"obligation_id": "p", **REPLY}
    assert not await db.record_crash_left_reply(**left, since=clock.time - 5)
    assert await db.record_crash_left_reply(**left, since=clock.time + 5)
    assert not await db.record_crash_left_reply(**left, since=clock.time + 5)
    (row,) = await db.sweep_recoverable()
    assert (row["obligation_id"], row["needs_marker"], row["attempts"]) == ("p", True, 1)


async def test_sweep_takes_what_can_be_sent(db: Any, raw: Any, clock: Any) -> None:
    await owe(db, "stale")
    await owe(db, "alive")
    clock.advance(DAY + 1)
    await owe(db, "tried thrice")
    await owe(db, "elsewhere", platform="slack")
    await owe(db, "of another", adapter_profile="work")
    await fail(db, "no such chat", "Bad Request: chat not found")
    await fail(db, "flooded", "flood_control:90")
    await fail(db, "asked to wait", "Flood control exceeded. Retry in 20 seconds")
    await fail(db, "waits by default", "flood_control")
    await fail(db, "failed", "Timed out")
    await raw.execute(
        "UPDATE delivery_obligations SET attempts = 3 WHERE obligation_id = 'tried thrice'"
    )
    await crash(raw, *(name for name in await states(raw) if name != "alive"))
    began, when = clock.time, clock.time + 61
    rows = await db.sweep_recoverable(
        when, deliverable_platforms=["telegram"], deliverable_targets=[("telegram", "default")]
    )
    found = {row["obligation_id"]: row for row in rows}
    assert found.keys() == {"flooded", "asked to wait", "waits by default", "failed"}
    adopted = found["flooded"]
    assert (adopted["adopted"], adopted["not_before"]) == (True, began + 90)
    assert (adopted["attempts"], adopted["receipt"]) == (0, ("flooded", 2))
    assert "adopted" not in found["asked to wait"]
    assert await states(raw) == {
        "stale": ("abandoned", 0, 0),
        "tried thrice": ("abandoned", 3, 0),
        "no such chat": ("abandoned", 0, 1),
        "alive": ("pending", 0, 0),
        "elsewhere": ("pending", 0, 0),
        "of another": ("pending", 0, 0),
        "flooded": ("failed", 0, 2),
        "asked to wait": ("attempting", 1, 2),
        "waits by default": ("attempting", 1, 2),
        "failed": ("attempting", 1, 2),
    }
    # What was adopted is now this process's: due when its wait is over.
    assert await db.pending_retries() == [
        {"platform": "telegram", "profile": "default", "not_before": began + 90}
    ]
    assert await db.sweep_failed_for_runtime("telegram", began + 89) == []
    (row,) = await db.sweep_failed_for_runtime("telegram", began + 90)
    assert (row["runtime_recovery"], row["needs_marker"], row["attempts"]) == (True, True, 1)
    assert row.keys() == KEYS | {"marker", "runtime_recovery", "last_error"}


async def test_process_retries_what_it_failed_to_send(db: Any, raw: Any, clock: Any) -> None:
    assert await db.pending_retries() == []
    await fail(db, "a", "Timed out")
    clock.advance(5)
    await fail(db, "b", "Timed out", adapter_profile="work")
    await fail(db, "c", "Timed out", platform="slack")
    await fail(db, "d", "Forbidden: bot was blocked by the user")
    await fail(db, "e", "Timed out")
    await crash(raw, "e")  # not this process's
    now = clock.time
    assert await db.pending_retries() == [
        {"platform": "slack", "profile": "default", "not_before": now + 30},
        {"platform": "telegram", "profile": "default", "not_before": now + 25},
        {"platform": "telegram", "profile": "work", "not_before": now + 30},
    ]
    assert await db.sweep_failed_for_runtime("telegram", now + 24) == []
    assert await db.sweep_failed_for_runtime("telegram", now + 40, profile="other") == []
    rows = await db.sweep_failed_for_runtime("telegram", now + 40, profile="work")
    assert [row["obligation_id"] for row in rows] == ["b"]
    clock.advance(40)
    (first,) = await db.sweep_failed_for_runtime("telegram")
    assert await db.mark_failed(first["receipt"], "Timed out")
    clock.advance(119)
    assert await db.sweep_failed_for_runtime("telegram") == []
    clock.advance(1)
    (second,) = await db.sweep_failed_for_runtime("telegram")
    assert (second["obligation_id"], second["attempts"]) == ("a", 2)
    # The last attempt is left to a restart.
    assert await db.mark_failed(second["receipt"], "Timed out")
    clock.advance(HOUR)
    assert await db.sweep_failed_for_runtime("telegram") == []
    await crash(raw, "a")
    rows = {row["obligation_id"]: row for row in await db.sweep_recoverable()}
    assert rows["a"]["attempts"] == 3
    assert await db.mark_failed(rows["a"]["receipt"], "Timed out")
    await crash(raw, "a")
    await db.sweep_recoverable()
    assert (await states(raw))["a"] == ("abandoned", 3, 4)


async def test_ledger_keeps_what_is_still_owed(db: Any, raw: Any, clock: Any) -> None:
    await owe(db, "first")
    columns = "obligation_id, session_key, platform, chat_id, content, state, created_at"
    values = ", ".join(
        f"('x{n:03}', 'k', 'p', '1', 'c', '{state}', {clock.time}, {clock.time + n})"
        for n, state in enumerate(["delivered"] * 100 + ["abandoned"] * 100 + ["failed"] * 400)
    )
    await raw.execute(f"INSERT INTO delivery_obligations ({columns}, updated_at) VALUES {values}")
    await owe(db, "new")
    left = await states(raw)
    assert len(left) == 500
    assert left.keys() >= {"first", "new", *(f"x{n}" for n in range(200, 600))}
    assert {name for name in left if name < "x200" and name[0] == "x"} == {
        f"x{n}" for n in range(102, 200)
    }
    await db.mark_delivered(await db.mark_attempting(("new", 0)))
    clock.advance(7 * DAY + HOUR)
    await owe(db, "newer")
    assert (await states(raw)).keys() == {"first", "newer", *(f"x{n}" for n in range(200, 600))}


async def test_ledger_that_nobody_has_used_is_empty(open_store: Callable[..., Any]) -> None:
    async with open_store() as db:
        await db.create_session("s", "cli")
    reader = open_store(read_only=True)
    assert await reader.pending_retries() == []
    writer = open_store()
    assert await writer.sweep_recoverable() == []
    assert await writer.sweep_failed_for_runtime("telegram") == []
    assert not await writer.mark_delivered(("nobody", 1))
