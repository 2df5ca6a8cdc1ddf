"""Background delegations: who works on one, and how its result reaches whoever asked."""

import asyncio
import queue
import sqlite3
import subprocess
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.contract.steps import cancelled_at

DAY = 86_400.0


def event(delegation_id: str, **more: Any) -> dict[str, Any]:
    return {
        "type": "async_delegation",
        "delegation_id": delegation_id,
        "status": "completed",
    } | more


async def completed(db: Any, delegation_id: str) -> str:
    """A delegation whose result waits for delivery."""
    await db.record_delegation_dispatch(delegation_id, "s", {"goal": "g"})
    assert await db.record_delegation_completion(event(delegation_id), {"summary": delegation_id})
    return delegation_id


async def abandon(raw: Any, delegation_id: str) -> None:
    """Have the process that works on a delegation be gone."""
    process = subprocess.Popen(["true"])  # noqa: ASYNC220
    process.wait()
    owner = "owner_instance_id = 'gone', lease_expires_at = 1" if raw.is_postgres else "owner_pid=?"
    params = () if raw.is_postgres else (process.pid,)
    await raw.execute(
        f"UPDATE async_delegations SET {owner} WHERE delegation_id = ?", *params, delegation_id
    )


async def state_of(db: Any, delegation_id: str) -> tuple[str, str, int]:
    row = await db.get_durable_delegation(delegation_id)
    return row["state"], row["delivery_state"], row["delivery_attempts"]


async def test_result_is_kept_until_it_is_delivered(db: Any, raw: Any, clock: Any) -> None:
    assert await db.get_durable_delegation("d") is None
    task = {"goal": "g", "toolsets": ["web"], "is_batch": False, "callback": print}
    await db.record_delegation_dispatch("d", "s", task, origin_session_id="o")
    running = await db.get_durable_delegation("d")
    assert running == {
        "delegation_id": "d",
        "origin_session": "s",
        "state": "running",
        "dispatched_at": clock.time,
        "completed_at": None,
        "result": None,
        "delivery_state": "pending",
        "delivery_attempts": 0,
        "origin_session_id": "o",
    }
    stored = await raw.fetch("SELECT task_json, origin_ui_session_id FROM async_delegations")
    assert stored == [('{"goal": "g", "toolsets": ["web"], "is_batch": false}', "")]
    clock.advance(5)
    assert await db.record_delegation_completion(event("d"), {"summary": "é\ud800\x00"})
    done = {"state": "completed", "completed_at": clock.time, "result": {"summary": "é\ud800\x00"}}
    assert await db.get_durable_delegation("d") == running | done
    # It has ended: a second report is fenced.
    late = event("d", status="error")
    assert not await db.record_delegation_completion(late, None)
    assert not await db.record_delegation_completion(event("unknown"), None)
    assert await db.get_durable_delegation("d") == running | done


async def test_dispatch_of_a_known_id_starts_anew(db: Any) -> None:
    await completed(db, "d")
    assert await db.claim_completion_delivery("d", "a")
    assert await db.complete_completion_delivery("d", "a")
    await db.record_delegation_dispatch("d", "t", {"goal": "again"})
    row = await db.get_durable_delegation("d")
    assert (row["origin_session"], row["result"], row["completed_at"]) == ("t", None, None)
    assert await state_of(db, "d") == ("running", "pending", 0)
    await db.delete_delegation_dispatch("d")
    assert await db.get_durable_delegation("d") is None


async def test_delegation_needs_an_id(db: Any) -> None:
    for delegation_id in ("", None, "d\x00", "d\ud800"):
        with pytest.raises(ValueError, match="delegation"):
            await db.record_delegation_dispatch(delegation_id, "s", {})
        with pytest.raises(ValueError, match="delegation"):
            await db.record_delegation_completion({"delegation_id": delegation_id}, {})
        assert await db.get_durable_delegation(delegation_id) is None


async def test_one_of_several_workers_gets_a_claim(db: Any, open_store: Callable[..., Any]) -> None:
    # usage 9.35
    await completed(db, "d")
    stores = [db, open_store()]
    won = await asyncio.gather(
        *(store.claim_completion_delivery("d", f"c{n}") for n, store in enumerate(stores))
    )
    assert sorted(won) == [False, True]
    for n, store in enumerate(stores):
        assert await store.claim_completion_delivery("nobody", f"c{n}")
    holder = f"c{won.index(True)}"
    assert not await db.release_completion_delivery("d", "another")
    assert await db.release_completion_delivery("d", holder)
    for _ in range(7):
        assert (await state_of(db, "d"))[1] == "pending"
        assert await db.claim_completion_delivery("d", "a")
        assert await db.release_completion_delivery("d", "a")
    assert await state_of(db, "d") == ("completed", "dropped", 8)
    assert not await db.claim_completion_delivery("d", "a")
    assert not await db.release_completion_delivery("d", "a")
    assert (await db.get_durable_delegation("d"))["result"] == {"summary": "d"}


async def test_claim_is_over_after_five_minutes(db: Any, raw: Any) -> None:
    await completed(db, "d")
    assert await db.claim_completion_delivery("d", "a")
    for seconds, is_free in ((290, False), (301, True)):
        await raw.execute(
            "UPDATE async_delegations SET delivery_claimed_at = delivery_claimed_at - ?", seconds
        )
        assert await db.claim_completion_delivery("d", "b") is is_free
        await raw.execute(
            "UPDATE async_delegations SET delivery_claimed_at = delivery_claimed_at + ?", seconds
        )
    assert not await db.complete_completion_delivery("d", "a")
    assert await db.complete_completion_delivery("d", "b")


async def test_holder_alone_ends_a_delivery(db: Any, raw: Any) -> None:
    for name, operation, ended in (
        ("x", db.drop_completion_delivery, "dropped"),
        ("y", db.complete_completion_delivery, "delivered"),
    ):
        await completed(db, name)
        assert not await operation(name, "a")
        assert await db.claim_completion_delivery(name, "a")
        assert not await operation(name, "b")
        assert not await operation(name, None)
        assert await operation(name, "a")
        assert not await operation(name, "a")
        assert (await state_of(db, name))[1] == ended
    assert await raw.fetch("SELECT delivery_claim FROM async_delegations") == [(None,), (None,)]
    assert await db.mark_completion_delivered("x")  # also what was dropped
    for known in ("x", "y", "unknown"):
        assert not await db.mark_completion_delivered(known)
    delivered = await raw.fetch("SELECT count(*) FROM async_delegations WHERE delivered_at > 0")
    assert delivered == [(2,)]


async def test_event_is_claimed_by_its_delegation(db: Any) -> None:
    await completed(db, "d")
    assert await db.claim_event_delivery({"type": "other", "delegation_id": "d"}, "cli") == ""
    assert await db.claim_event_delivery({"type": "async_delegation"}, "cli") == ""
    claim = await db.claim_event_delivery(event("d"), "cli")
    assert claim.startswith("cli:")
    assert await db.claim_event_delivery(event("d"), "gateway") is None
    assert await db.complete_completion_delivery("d", claim)


async def test_claim_of_a_cancelled_caller_is_released(db: Any) -> None:
    for step in range(1, 40):
        name = await completed(db, f"d{step}")
        ended = await cancelled_at(step, partial(db.claim_completion_delivery, name, "a"))
        assert await db.claim_completion_delivery(name, "b") is not ended
        if ended:
            return
    pytest.fail("the call has no end")


async def test_delegation_of_a_process_that_is_gone_ends_as_unknown(db: Any, raw: Any) -> None:
    # usage 9.36
    for name in ("lost", "alive"):
        await db.record_delegation_dispatch(
            name, "s", {"goal": "g", "role": "r"}, origin_ui_session_id="ui", origin_session_id="o"
        )
    await abandon(raw, "lost")
    assert await db.recover_abandoned_delegations() == 1
    assert await db.recover_abandoned_delegations() == 0
    assert await state_of(db, "alive") == ("running", "pending", 0)
    assert await state_of(db, "lost") == ("unknown", "pending", 0)
    assert not await db.record_delegation_completion(event("lost"), {"summary": "late"})
    row = await db.get_durable_delegation("lost")
    assert (row["state"], row["result"]["status"]) == ("unknown", "unknown")
    assert "ended before it reported" in row["result"]["error"]
    events: queue.Queue[Any] = queue.Queue()
    assert await db.restore_undelivered_completions(events) == 1
    restored = events.get_nowait()
    told = {
        "type": "async_delegation",
        "delegation_id": "lost",
        "session_key": "s",
        "origin_ui_session_id": "ui",
        "origin_session_id": "o",
        "goal": "g",
        "role": "r",
        "status": "unknown",
        "completed_at": row["completed_at"],
        "restored": True,
    }
    assert {key: restored[key] for key in told} == told


async def test_late_owner_does_not_report_for_another(db: Any, raw: Any) -> None:
    await db.record_delegation_dispatch("d", "s", {})
    await abandon(raw, "d")
    assert not await db.record_delegation_completion(event("d"), {})
    assert await state_of(db, "d") == ("running", "pending", 0)


async def test_events_are_restored_once_for_each_queue(
    db: Any, raw: Any, open_store: Callable[..., Any]
) -> None:
    for name in ("a", "b", "c", "delivered", "running", "broken"):
        await db.record_delegation_dispatch(name, "s", {})
    for number, name in enumerate(("c", "a", "b", "delivered", "broken")):
        assert await db.record_delegation_completion(event(name, number=number), None)
        await raw.execute(
            "UPDATE async_delegations SET completed_at = ? WHERE delegation_id = ?",
            float(max(1, number)),
            name,
        )
    await db.mark_completion_delivered("delivered")
    await raw.execute(
        "UPDATE async_delegations SET event_json = '[' WHERE delegation_id = 'broken'"
    )
    for kind in (queue.Queue, queue.SimpleQueue, asyncio.Queue):
        events: Any = kind()
        assert await db.restore_undelivered_completions(events) == 3
        assert await db.restore_undelivered_completions(events) == 0
        assert await open_store().restore_undelivered_completions(events) == 0
        restored = [events.get_nowait() for _ in range(3)]
        assert [each["delegation_id"] for each in restored] == ["a", "c", "b"]
        assert all(each["restored"] is True for each in restored)
        assert events.empty()


async def test_full_queue_may_be_served_later(db: Any) -> None:
    for name in "ab":
        await completed(db, name)
    events: queue.Queue[Any] = queue.Queue(1)
    with pytest.raises(queue.Full):
        await db.restore_undelivered_completions(events)
    events.get_nowait()
    events.maxsize = 0
    assert await db.restore_undelivered_completions(events) == 2


async def test_renewing_keeps_the_own_delegations(
    db: Any, raw: Any, caplog: Any, monkeypatch: Any
) -> None:
    for name in ("own", "other"):
        await db.record_delegation_dispatch(name, "s", {})
    if raw.is_postgres:
        await raw.execute("UPDATE async_delegations SET lease_expires_at = 1")
        await raw.execute(
            "UPDATE async_delegations SET owner_instance_id = 'x' WHERE delegation_id = 'other'"
        )
    await db.renew_delegation_leases()
    assert await db.recover_abandoned_delegations() == int(raw.is_postgres)
    assert await state_of(db, "own") == ("running", "pending", 0)

    async def locked(*args: Any, **kwargs: Any) -> None:
        raise sqlite3.OperationalError("database is locked")

    monkeypatch.setattr(db.database, "write", locked)
    await db.renew_delegation_leases()
    assert "were not renewed: database is locked" in caplog.text


async def test_results_that_wait_outlive_those_that_are_delivered(
    db: Any, raw: Any, clock: Any
) -> None:
    for number in range(60):
        await completed(db, f"waiting {number:02}")
        clock.advance(1)
    assert await raw.fetch("SELECT count(*) FROM async_delegations") == [(60,)]
    await raw.execute("UPDATE async_delegations SET delivery_state = 'dropped'")
    await raw.execute(
        "UPDATE async_delegations SET delivery_state = 'delivered', delivered_at = updated_at"
        " WHERE delegation_id >= 'waiting 55'"
    )
    await db.record_delegation_dispatch("new", "s", {})
    left = await raw.fetch("SELECT delegation_id FROM async_delegations ORDER BY 1")
    assert [row[0] for row in left] == ["new", *(f"waiting {n:02}" for n in range(5, 55))]
    await raw.execute(
        "UPDATE async_delegations SET delivery_state = 'delivered', delivered_at = ?"
        " WHERE delegation_id <> 'new'",
        clock.time,
    )
    clock.advance(7 * DAY + 1)
    await db.record_delegation_dispatch("newer", "s", {})
    left = await raw.fetch("SELECT delegation_id FROM async_delegations ORDER BY 1")
    assert left == [("new",), ("newer",)]
