"""Hand-offs of sessions between platforms: gateway 6."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.contract.conftest import Sent
from tests.contract.stories import Story, ids
from tests.contract.test_processes import at_once


async def state_of(db: Any, session_id: str = "s") -> Any:
    found = await db.get_handoff_state(session_id)
    return found and found["state"]


async def test_states_of_a_handoff(db: Any, session: str) -> None:  # gateway 11.23
    assert await db.get_handoff_state("s") == dict.fromkeys(("state", "platform", "error"))
    assert await db.request_handoff("s", "telegram") is True
    assert await db.request_handoff("s", "discord") is False
    assert await db.get_handoff_state("s") == {
        "state": "pending",
        "platform": "telegram",
        "error": None,
    }
    assert await db.claim_handoff("s") is True
    assert await db.claim_handoff("s") is False
    assert await db.request_handoff("s", "discord") is False
    assert await db.fail_handoff("s", "late", only_states=("pending",)) is False
    assert await db.complete_handoff("s") is True
    assert await state_of(db) == "completed"
    assert await db.request_handoff("s", "discord") is True
    assert await db.complete_handoff("s", only_states=("running",)) is False
    assert await state_of(db) == "pending"
    assert await db.complete_handoff("s", only_states=("running", "pending")) is True
    assert await db.complete_handoff("s", only_states=()) is True


async def test_failures_keep_500_characters(
    db: Any, session: str, story: Story
) -> None:  # gateway 11.24
    assert await db.fail_handoff("nobody", "x") is False
    for error, stored in [("x" * 900, "x" * 500), (None, ""), ("a\0b\ud800", "a\ufffdb\ufffd")]:
        assert await db.fail_handoff("s", error) is True
        assert (await db.get_handoff_state("s"))["error"] == stored
    await db.complete_handoff("s")
    assert (await db.get_handoff_state("s"))["error"] is None
    await story.new("r", handoff_state="running")
    await story.new("p", handoff_state="pending")
    assert await db.reclaim_stale_running_handoffs("restarted") == ["r"]
    assert (await db.get_handoff_state("r"))["error"] == "restarted"
    assert await state_of(db, "p") == "pending"
    assert await db.reclaim_stale_running_handoffs("restarted") == []


async def test_unknown_and_bad_arguments(db: Any, session: str) -> None:
    for unknown in ("nobody", "", None, "\0"):
        assert await db.request_handoff(unknown, "telegram") is False
        assert await db.get_handoff_state(unknown) is None
        assert await db.claim_handoff(unknown) is False
        assert await db.complete_handoff(unknown) is False
    with pytest.raises(ValueError, match="platform is empty"):
        await db.request_handoff("s", "")
    with pytest.raises(TypeError, match="only_states"):
        await db.complete_handoff("s", only_states="running")


async def test_pending_ones_in_order(db: Any, story: Story, sent: Sent) -> None:
    assert await db.has_pending_handoffs() is False
    assert await db.list_pending_handoffs() == []
    for session_id, at in [("c", 3), ("b", 1), ("a", 3), ("d", 2)]:
        await story.new(session_id, at, archived=1, transport_profile="bot", created_source="cli")
        await db.request_handoff(session_id, "telegram")
    await db.end_session("b", "cli_close")
    sent()
    assert await db.has_pending_handoffs() is True
    rows = await db.list_pending_handoffs()
    assert sent() == 2
    assert ids(rows) == ["b", "d", "a", "c"]
    assert {**await db.get_session("b"), "transport_profile": "bot"} == {
        key: value for key, value in rows[0].items() if key != "created_source"
    }
    assert rows[0]["created_source"] == "cli"
    claimed = await db.claim_pending_handoffs(2)
    assert sent() == 4  # with get_session
    assert ids(claimed) == ["b", "d"]
    assert [row["handoff_state"] for row in claimed] == ["running", "running"]
    assert await db.claim_pending_handoffs(0) == []
    assert ids(await db.claim_pending_handoffs(None)) == ["a", "c"]


@pytest.mark.parametrize("what", ["claim", "claim several"])
async def test_each_handoff_is_claimed_once(
    location: str, db: Any, story: Story, what: str
) -> None:  # gateway 11.25
    expected = {f"s{number}" for number in range(40)}
    for session_id in expected:
        await story.new(session_id, handoff_state="pending")
    one, other = await at_once("claiming", [(location, what)] * 2)
    assert len(one) + len(other) == 40
    assert {*one, *other} == expected


async def test_reclaiming_by_two_processes(
    location: str, db: Any, story: Story
) -> None:  # gateway 11.25
    for number in range(50):
        await story.new(f"s{number:02}", handoff_state="running")
    answers = await at_once("claiming", [(location, "reclaim")] * 2)
    assert sorted(map(len, answers)) == [0, 50]
    assert max(answers) == [f"s{number:02}" for number in range(50)]


async def test_one_store_watches(db: Any, open_store: Callable[..., Any]) -> None:
    other = open_store()
    async with db.handoff_watcher_lock() as mine:
        assert mine is True
        async with other.handoff_watcher_lock() as theirs:
            assert theirs is False
    async with other.handoff_watcher_lock() as theirs:
        assert theirs is True
