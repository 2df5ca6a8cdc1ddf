"""Queued token usage: order, merging, barriers, failures, and the life of the queue."""

import asyncio
import contextlib
import logging
import os
import sqlite3
from collections.abc import Callable
from typing import Any

import pytest

from hermes_orm import SessionDB
from hermes_orm.repositories.usage.usage import UsageRepository


async def tokens(db: Any, session_id: str = "s") -> int:
    row = await db.get_session(session_id)
    return int(row["input_tokens"])


def writers() -> list[asyncio.Task[Any]]:
    return [task for task in asyncio.all_tasks() if task.get_name() == "hermes-orm token counts"]


async def test_reports_keep_their_order(db: Any, session: str) -> None:  # usage 9, R1
    await db.queue_token_counts("s", input_tokens=5)
    await db.queue_token_counts("s", input_tokens=100, absolute=True)
    await db.queue_token_counts("s", input_tokens=7)
    assert await db.flush_token_counts() is True
    assert await tokens(db) == 107
    await db.queue_token_counts("s", input_tokens=5)
    await db.update_token_counts("s", input_tokens=400, absolute=True)
    await db.flush_token_counts()
    assert await tokens(db) == 400
    for total in (100, 300):
        await db.update_token_counts("s", input_tokens=total, absolute=True)
    await db.queue_token_counts("s", input_tokens=5)
    await db.flush_token_counts()
    assert await tokens(db) == 305


async def test_adjacent_reports_of_one_route_are_one_write(
    db: Any, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases: list[tuple[list[dict[str, Any]], int]] = [
        ([{"input_tokens": 2}, {"input_tokens": 3}], 1),
        ([{"input_tokens": 2, "model": "m"}, {"input_tokens": 3, "model": "n"}], 2),
        ([{"input_tokens": 2}, {"input_tokens": 3, "cost_status": "est"}], 2),
        ([{"input_tokens": 2, "absolute": True}, {"input_tokens": 3, "absolute": True}], 2),
        ([{"actual_cost_usd": 0.5}, {"actual_cost_usd": 0.25}, {"actual_cost_usd": None}], 1),
    ]
    writes = []
    record = UsageRepository.record

    def noted(self: UsageRepository, report: Any) -> None:
        writes.append(report)
        record(self, report)

    monkeypatch.setattr(UsageRepository, "record", noted)
    for reports, number in cases:
        writes.clear()
        for report in reports:
            await db.queue_token_counts("s", **report)
        assert await db.flush_token_counts()
        assert len(writes) == number, reports
    row = await db.get_session("s")
    assert (row["input_tokens"], row["actual_cost_usd"]) == (3, 0.75)
    for session_id in ("a", "b", "a"):
        await db.queue_token_counts(session_id, input_tokens=1, api_call_count=1)
    await db.flush_token_counts()
    assert (await tokens(db, "a"), await tokens(db, "b")) == (2, 1)


async def test_idle_store_has_no_task(db: Any, session: str) -> None:
    assert await db.flush_token_counts(0) is True
    await db.queue_token_counts("s", input_tokens=1)
    assert len(writers()) == 1
    assert await db.flush_token_counts(0) is False
    assert await db.flush_token_counts(-1) is False
    assert await db.flush_token_counts() is True
    assert writers() == [] and await tokens(db) == 1


async def test_later_calls_come_after_queued_usage(db: Any, session: str) -> None:  # usage 10
    await db.queue_token_counts("s", model="m", billing_provider="old", api_call_count=1)
    await db.update_session_billing_route("s", provider="new", base_url="u")
    row = await db.get_session("s")
    assert (row["billing_provider"], row["api_call_count"]) == ("new", 1)
    calls = 1
    followers: tuple[Callable[[], Any], ...] = (
        lambda: db.update_session_model("s", "n"),
        lambda: db.update_session_meta("s", "{}"),
        lambda: db.update_token_counts("s", output_tokens=1),
        lambda: db.record_auxiliary_usage("s", "title"),
        lambda: db.list_sessions_rich(),
        lambda: db.get_session_rich_row("s"),
        lambda: db.search_sessions_by_id("s"),
        lambda: db.get_recent_session_model_route("s"),
    )
    for later in followers:
        await db.queue_token_counts("s", api_call_count=1)
        await later()
        calls += 1
        assert (await db.get_session("s"))["api_call_count"] == calls
    await db.queue_token_counts("s", api_call_count=1)
    (listed,) = await db.list_sessions_rich()
    assert listed["api_call_count"] == calls + 1


async def test_close_stores_what_is_queued(
    db: Any, open_store: Callable[..., Any]
) -> None:  # usage 11, R4
    store = open_store()
    await db.create_session("s", "cli")
    for number in range(10):
        await store.queue_token_counts("s", input_tokens=1, model=f"m{number % 3}")
    await asyncio.gather(store.close(), store.close())
    assert await tokens(db) == 10
    assert await store.flush_token_counts() is True
    with pytest.raises(RuntimeError, match="closed"):
        await store.queue_token_counts("s", input_tokens=1)
    never_opened = open_store()
    await never_opened.queue_token_counts("t", input_tokens=1)
    await never_opened.close()
    assert await tokens(db, "t") == 1


async def test_close_stores_what_waits_for_a_block(
    db: Any, session: str, open_store: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hermes_orm.dialects.transport.CLOSE_AFTER", 0.1)
    is_held, is_closed = asyncio.Event(), asyncio.Event()

    async def block() -> None:
        async with db.transaction() as unit:
            await unit.update_token_counts("s", input_tokens=100)
            is_held.set()
            await is_closed.wait()

    holder = asyncio.create_task(block())
    await is_held.wait()
    await db.queue_token_counts("s", input_tokens=5)
    began = asyncio.get_running_loop().time()
    await db.close()
    assert asyncio.get_running_loop().time() - began < 5
    is_closed.set()
    await asyncio.wait({holder})
    assert holder.exception() is not None
    assert await tokens(open_store()) == 5


async def test_arguments_are_checked_at_once(db: Any, open_store: Callable[..., Any]) -> None:
    for bad in ({"bogus": 1}, {"input_tokens": "5"}):
        with pytest.raises(TypeError):
            await db.queue_token_counts("s", **bad)
    with pytest.raises(PermissionError):
        await open_store(read_only=True).queue_token_counts("s", input_tokens=1)
    assert await open_store(read_only=True).flush_token_counts() is True


async def test_write_that_fails_is_dropped(
    db: Any, session: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:  # usage 12
    record = UsageRepository.record

    def failing(self: UsageRepository, report: Any) -> None:
        if report.session_id == "bad":
            raise sqlite3.OperationalError("database is locked")
        record(self, report)

    monkeypatch.setattr(UsageRepository, "record", failing)
    monkeypatch.setattr(type(db.database), "write", _impatient(type(db.database).write))
    with caplog.at_level(logging.WARNING):
        for session_id in ("s", "bad", "s"):
            await db.queue_token_counts(session_id, input_tokens=2)
        assert await db.flush_token_counts() is True
    assert "a write failed and is dropped" in caplog.text
    assert await tokens(db) == 4


def _impatient(write: Any) -> Any:
    async def impatient(self: Any, work: Any, **options: Any) -> Any:
        return await write(self, work, **{**options, "patience": 0.01})

    return impatient


async def test_cancellation_loses_and_doubles_nothing(db: Any, session: str) -> None:
    for turn in range(20):
        for number in range(3):
            await db.queue_token_counts("s", input_tokens=1, model=str(number))
        waiter = asyncio.create_task(db.flush_token_counts())
        for _ in range(turn % 7):
            await asyncio.sleep(0)
        (waiter if turn % 2 else writers()[0]).cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await waiter
    assert await db.flush_token_counts() is True
    assert await tokens(db) == 60


async def test_reports_while_others_are_stored(db: Any, session: str) -> None:
    async def report(model: str) -> None:
        for _ in range(20):
            await db.queue_token_counts("s", input_tokens=1, model=model)
            await asyncio.sleep(0)

    await asyncio.gather(*(report(model) for model in "abc"))
    await db.flush_token_counts()
    assert await tokens(db) == 60


async def test_loop_that_ends_leaves_the_queue(make_location: Callable[..., str]) -> None:
    location = make_location("sqlite")

    def in_two_loops() -> int:
        db = SessionDB(location)

        async def queue() -> None:
            await db.create_session("s", "cli")
            await db.queue_token_counts("s", input_tokens=5)

        async def close() -> int:
            await db.flush_token_counts()
            found = await tokens(db)
            await db.close()
            return found

        asyncio.run(queue())
        return asyncio.run(close())

    assert await asyncio.to_thread(in_two_loops) == 5


async def test_child_process_leaves_the_queue_to_its_parent(
    db: Any, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await db.queue_token_counts("s", input_tokens=5)
    with monkeypatch.context() as child:
        child.setattr(os, "getpid", lambda: -1)
        assert db.database.token_queue.is_idle


async def test_deleted_session_takes_no_late_usage(
    db: Any, raw: Any, open_store: Callable[..., Any], session: str
) -> None:  # usage 42
    for _ in range(10):
        await db.queue_token_counts("s", input_tokens=1)
    assert await db.delete_session("s") is True
    await db.update_token_counts("s", input_tokens=3)
    await db.update_token_counts("s", input_tokens=3, absolute=True)
    await db.queue_token_counts("s", input_tokens=3)
    await db.record_auxiliary_usage("s", "title", input_tokens=3)
    assert await db.get_session("s") is None
    assert await raw.fetch("SELECT * FROM session_model_usage") == []
    await open_store().update_token_counts("s", input_tokens=4)
    assert (await db.get_session("s"))["source"] == "unknown"
    await db.update_token_counts("s", input_tokens=3)  # it is there again
    assert await tokens(db) == 7
    assert await db.delete_session("s") is True
    await db.create_session("s", "cli")
    await db.update_token_counts("s", input_tokens=3)
    assert await tokens(db) == 3
    await db.queue_token_counts("new", input_tokens=1)
    assert await db.delete_sessions(["s", "new"]) == 2
    await db.queue_token_counts("new", input_tokens=1)
    assert await db.flush_token_counts() and await db.session_count() == 0


async def test_deletion_that_is_undone_drops_no_usage(db: Any, session: str) -> None:
    with contextlib.suppress(KeyError):
        async with db.transaction() as unit:
            assert await unit.delete_session("s") is True
            await unit.update_token_counts("s", input_tokens=1)
            assert await unit.get_session("s") is None
            raise KeyError
    await db.update_token_counts("s", input_tokens=2)
    assert await tokens(db) == 2


async def test_tombstones_are_forgotten(db: Any, clock: Any, monkeypatch: Any) -> None:
    tombstones = db.database.tombstones
    tombstones.bury(["a", "b"])
    clock.time += 3599
    assert "a" in tombstones
    tombstones.bury(["b"])
    clock.time += 2
    assert "a" not in tombstones and "b" in tombstones
    tombstones.bury(["old"])
    clock.time += 3600
    tombstones.bury(["new"])
    assert list(tombstones._buried) == ["new"], "nobody has asked for the others"
    tombstones.bury("b")
    monkeypatch.setattr("hermes_orm.tombstones.LIMIT", 2)
    tombstones.bury("cd")
    assert [key for key in "abcd" if key in tombstones] == ["c", "d"]
