"""Waiting for the turn in a conversation: messages.md sections 11 and 19."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture
async def busy(db: Any) -> Any:
    """A store in which A has the turn in `p`."""
    await db.try_acquire_session_turn_lease("p", "A")
    return db


async def test_wait_ends_and_is_told_of(busy: Any) -> None:
    told: list[float] = []
    began = time.monotonic()
    acquired = await busy.acquire_session_turn_lease(
        "p",
        "B",
        wait_seconds=1,
        poll_interval_seconds=0.2,
        wait_notice_interval_seconds=0.5,
        on_wait=told.append,
    )
    assert acquired is False
    assert 0.95 < time.monotonic() - began < 5
    first, second = told
    assert 0 <= first < 0.4
    assert 0.5 <= second - first < 1


@pytest.mark.parametrize("wait_seconds", [0, -1])
async def test_without_time_there_is_one_try(busy: Any, wait_seconds: float) -> None:
    told: list[float] = []
    wait = {"wait_seconds": wait_seconds, "on_wait": told.append}
    assert await busy.acquire_session_turn_lease("p", "B", **wait) is False
    assert await busy.acquire_session_turn_lease("q", "B", **wait) is True
    assert told == []


async def test_turn_comes_when_it_is_given_back(busy: Any) -> None:
    wait = {"wait_seconds": 10, "poll_interval_seconds": 0.05}
    waiting = asyncio.create_task(busy.acquire_session_turn_lease("p", "B", **wait))
    await asyncio.sleep(0.2)
    assert not waiting.done()
    await busy.release_session_turn_lease("p", "A")
    assert await waiting is True
    assert await busy.refresh_session_turn_lease("p", "B") is True


async def test_wait_is_aborted(busy: Any) -> None:
    asked = iter([False, False, True])
    began = time.monotonic()
    acquired = await busy.acquire_session_turn_lease(
        "p", "B", poll_interval_seconds=0, should_abort=lambda: next(asked)
    )
    assert acquired is False
    assert next(asked, "exhausted") == "exhausted"
    assert time.monotonic() - began < 5
    assert await busy.acquire_session_turn_lease("q", "B", should_abort=lambda: True) is False
    assert await busy.try_acquire_session_turn_lease("q", "C") is True, "not even tried"


async def test_callbacks_that_fail_are_ignored(busy: Any, caplog: pytest.LogCaptureFixture) -> None:
    asked = iter(range(3))

    def abort() -> bool:
        if next(asked) < 2:
            raise RuntimeError("of the host")
        return True

    def fail(seconds: float) -> None:
        raise RuntimeError("of the host")

    wait = {"poll_interval_seconds": 0, "wait_notice_interval_seconds": 0, "on_wait": fail}
    acquired = await busy.acquire_session_turn_lease("p", "B", should_abort=abort, **wait)
    assert acquired is False
    failures = [record for record in caplog.records if "callback" in record.getMessage()]
    assert len(failures) == 4, "each poll asks and tells"


@pytest.mark.parametrize(("session_id", "holder"), [("", "B"), ("p", ""), (None, "B")])
async def test_nothing_is_waited_for_in_vain(busy: Any, session_id: Any, holder: str) -> None:
    waiting = busy.acquire_session_turn_lease(session_id, holder)
    assert await asyncio.wait_for(waiting, 5) is False


async def test_cancelled_wait_holds_nothing(busy: Any) -> None:
    for delay in (0, 0.001, 0.01):
        waiting = asyncio.create_task(busy.acquire_session_turn_lease("q", "B"))
        await asyncio.sleep(delay)
        if not waiting.done():
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        else:
            await busy.release_session_turn_lease("q", "B")
        assert await busy.try_acquire_session_turn_lease("q", "C") is True
        await busy.release_session_turn_lease("q", "C")


async def test_busy_database_counts_as_not_acquired(
    busy: Any, raw: Any, open_store: Callable[..., Any]
) -> None:
    lock = "SELECT * FROM session_turn_leases FOR UPDATE" if raw.is_postgres else "BEGIN IMMEDIATE"
    with raw.engine.connect() as connection:
        connection.exec_driver_sql(lock)
        began = time.monotonic()
        acquired = await busy.acquire_session_turn_lease(
            "p", "A", wait_seconds=0.3, poll_interval_seconds=0.1, acquire_patience_s=0.1
        )
        assert acquired is False
        assert time.monotonic() - began < 8
        with pytest.raises(Exception, match="database is locked"):
            await busy.try_acquire_session_turn_lease("p", "A", patience_s=0.1)
        connection.rollback()
    assert await busy.acquire_session_turn_lease("p", "A") is True
