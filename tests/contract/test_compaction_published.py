"""Carrying a conversation on in a new session: messages.md sections 13 and 19."""

import asyncio
import sqlite3
import time
from typing import Any

import pytest

from hermes_orm.errors import (
    CompressionSessionBusyError,
    CompressionSessionClosedError,
    SessionCompressionInProgressError,
)
from tests.contract.turns import assistant, contents, user

PEER = {
    "user_id": "u",
    "session_key": "agent:main:k",
    "chat_id": "c",
    "chat_type": "dm",
    "thread_id": "t",
    "display_name": "n",
    "origin_json": '{"o": 1}',
}


def child(**arguments: Any) -> dict[str, Any]:
    """The arguments of a publication from `p` to `c` by the holder A."""
    return {
        "parent_session_id": "p",
        "child_session_id": "c",
        "source": "cli",
        "messages": [user("sum"), assistant("ok", "c1")],
        "compression_lock_holder": "A",
        **arguments,
    }


@pytest.fixture
async def ids(db: Any) -> list[int]:
    """m0 m1 m2 foreign own in `p`, whose compression lock is A's; their ids."""
    fields = {"cwd": "/w", "profile_name": "main", "git_repo_root": "/r", **PEER}
    await db.create_session("p", "telegram", model="m", system_prompt="P", **fields)
    await db.try_acquire_compression_lock("p", "A")
    texts = ("m0", "m1", "m2", "foreign", "own")
    return [await db.append_message("p", "user", text) for text in texts]


async def test_child_has_the_summary_and_what_came_in_between(
    db: Any, raw: Any, ids: list[int]
) -> None:
    await db.set_session_title("p", "T")
    await db.set_session_pinned("p", True)
    result = await db.publish_compression_child(**child(watermark=ids[2], watermark_ceiling=ids[3]))
    assert result is None
    assert contents(await db.get_messages("c")) == ["sum", "ok", "foreign"]
    assert contents(await db.get_messages("p")) == ["m0", "m1", "m2", "foreign", "own"]
    parent, new = await db.get_session("p"), await db.get_session("c")
    assert parent["end_reason"] == "compression"
    assert parent["ended_at"] == new["started_at"] == pytest.approx(time.time(), abs=5)
    assert (parent["message_count"], parent["tool_call_count"]) == (5, 0)
    assert (new["message_count"], new["tool_call_count"]) == (3, 1)
    assert await db.get_compression_lock_holder("p") == "A"
    assert await db.get_compression_tip("p") == "c"
    with pytest.raises(RuntimeError, match="already ended"):
        await db.publish_compression_child(**child(child_session_id="d"))
    assert await db.get_session("d") is None


async def test_what_the_child_inherits(db: Any, raw: Any, ids: list[int]) -> None:
    await raw.execute("UPDATE sessions SET git_branch = 'b', archived = 1, input_tokens = 9")
    await db.record_compression_failure_cooldown("p", time.time() + 99, "x")
    await db.publish_compression_child(**child(source="cron", system_prompt="Q", model_config={}))
    new = await db.get_session("c")
    same = ("cwd", "profile_name", "git_branch", "git_repo_root", *PEER)
    parent = await db.get_session("p")
    assert {key: new[key] for key in same} == {key: parent[key] for key in same}
    assert (new["source"], new["system_prompt"]) == ("cron", "Q")
    assert new["parent_session_id"] == "p"
    for absent in ("model", "title", "model_config", "compression_failure_cooldown_until"):
        assert new[absent] is None, absent
    assert (new["archived"], new["input_tokens"], new["pinned"]) == (0, 0, 0)
    [(source,)] = await raw.fetch("SELECT created_source FROM sessions WHERE id = 'c'")
    assert source == "cron"


async def test_what_is_given_wins(db: Any, ids: list[int]) -> None:
    given = {"cwd": "/x", "profile_name": "q", "model": "n", "model_config": {"k": "\ud800"}}
    await db.publish_compression_child(**child(**given))
    new = await db.get_session("c")
    assert (new["cwd"], new["profile_name"], new["model"]) == ("/x", "q", "n")
    assert new["model_config"] == '{"k": "\\ud800"}'
    await db.try_acquire_compression_lock("c", "A")
    again = {"parent_session_id": "c", "child_session_id": "d", "cwd": "", "profile_name": ""}
    await db.publish_compression_child(**child(**again))
    new = await db.get_session("d")
    assert (new["cwd"], new["profile_name"], new["system_prompt"]) == ("/x", "q", None)


async def test_reasoning_is_stored_as_it_is(db: Any, ids: list[int]) -> None:
    thought = assistant("x", reasoning_details='[{"a":1}]')
    await db.publish_compression_child(**child(messages=[thought]))
    [row] = await db.get_messages("c")
    assert row["reasoning_details"] == '[{"a":1}]'


@pytest.mark.parametrize(
    ("after", "up_to", "copied"),
    [
        (None, 4, []),
        (0, None, ["m1", "m2", "foreign", "own"]),
        (2, None, ["foreign", "own"]),
        (2, 2, []),
        (0, 3, ["m1", "m2", "foreign"]),
    ],
)
async def test_which_messages_follow(
    db: Any, ids: list[int], after: int | None, up_to: int | None, copied: list[str]
) -> None:
    watermark, ceiling = (None if n is None else ids[n] for n in (after, up_to))
    await db.publish_compression_child(**child(watermark=watermark, watermark_ceiling=ceiling))
    assert contents(await db.get_messages("c")) == ["sum", "ok", *copied]
    assert (await db.get_session("c"))["message_count"] == 2 + len(copied)


async def test_undone_and_archived_messages_do_not_follow(db: Any, ids: list[int]) -> None:
    await db.rewind_to_message("p", ids[4])
    await db.archive_and_compact("p", [], watermark=ids[2])
    await db.publish_compression_child(**child(watermark=0))
    assert contents(await db.get_messages("c")) == ["sum", "ok", "foreign"]


async def refused(
    db: Any, error: type[Exception], match: str | None = None, **arguments: Any
) -> Exception:
    """Publish in vain; return the error."""
    before = await db.get_session("p"), await db.get_session("c"), await db.get_messages("p")
    with pytest.raises(error, match=match) as caught:
        await db.publish_compression_child(**child(**arguments))
    after = await db.get_session("p"), await db.get_session("c"), await db.get_messages("p")
    assert after == before
    return caught.value


async def test_what_is_refused_changes_nothing(db: Any, raw: Any, ids: list[int]) -> None:
    await refused(db, RuntimeError, "must not be empty", messages=[])
    lost = await refused(db, CompressionSessionBusyError, "lost", compression_lock_holder="B")
    assert not isinstance(lost, SessionCompressionInProgressError)
    for nobody in (None, ""):
        await refused(db, CompressionSessionBusyError, "lost", compression_lock_holder=nobody)
    free = {"require_compression_lease": False}
    await refused(db, RuntimeError, "parent not found", parent_session_id="x", **free)
    await refused(db, CompressionSessionBusyError, "lost", parent_session_id="x")
    await db.create_session("c", "cli", system_prompt="C")
    for existing in ("c", "p"):
        await refused(db, sqlite3.IntegrityError, child_session_id=existing, system_prompt="new")
    assert await db.get_messages("c") == []
    await refused(db, TypeError, "mapping", child_session_id="d", messages=[user("x"), 5])
    await refused(db, ValueError, "session id", child_session_id="d\x00")
    await raw.execute("UPDATE compression_locks SET expires_at = ?", time.time() - 1)
    await refused(db, CompressionSessionBusyError, "lost", child_session_id="d")
    prompts = await raw.fetch("SELECT prompt FROM system_prompts ORDER BY prompt")
    assert [tuple(row) for row in prompts] == [("C",), ("P",)]


async def test_without_required_lock_nobody_is_asked(db: Any, ids: list[int]) -> None:
    free = {"require_compression_lease": False, "compression_lock_holder": None}
    await db.publish_compression_child(**child(**free))
    assert (await db.get_session("p"))["end_reason"] == "compression"


async def test_one_of_several_publishers_wins(db: Any, open_store: Any, ids: list[int]) -> None:
    async def publish(number: int) -> str:
        store = open_store()
        arguments = child(child_session_id=f"c{number}", require_compression_lease=False)
        try:
            await store.publish_compression_child(**arguments)
        except RuntimeError as error:
            assert "already ended" in str(error)  # noqa: PT017
            return ""
        return f"c{number}"

    outcomes = await asyncio.gather(*(publish(number) for number in range(6)))
    [winner] = filter(None, outcomes)
    assert await db.session_count() == 2
    assert len(await db.get_messages(winner)) == 2


async def test_concurrent_appends_follow_or_are_refused(
    db: Any, open_store: Any, ids: list[int]
) -> None:
    writer = open_store()
    stored = []

    async def append(number: int) -> None:
        await asyncio.sleep(number * 0.002)
        try:
            await writer.append_message("p", "user", f"late {number}")
        except CompressionSessionClosedError:
            return
        stored.append(f"late {number}")

    async def publish() -> None:
        await asyncio.sleep(0.02)
        await db.publish_compression_child(**child(watermark=ids[4]))

    await asyncio.gather(publish(), *(append(number) for number in range(20)))
    assert sorted(contents(await db.get_messages("c"))[2:]) == sorted(stored)


async def test_turn_goes_on_in_the_child(db: Any, ids: list[int]) -> None:
    await db.try_acquire_session_turn_lease("p", "H")
    await db.publish_compression_child(**child())
    await db.append_message("c", "user", "x", turn_lease_holder="H")


async def test_child_is_as_recent_as_its_messages(db: Any, raw: Any, ids: list[int]) -> None:
    await raw.execute("UPDATE messages SET timestamp = 5000000000 WHERE content = 'foreign'")
    await db.publish_compression_child(**child(watermark=ids[2]))
    assert (await db.get_session_rich_row("c"))["last_active"] == 5e9
    [(stored,)] = await raw.fetch(
        "SELECT last_active FROM hermes_session_recency WHERE session_id = 'c'"
    )
    assert stored == 5e9
    assert {hit["session_id"] for hit in await db.search_messages("foreign")} >= {"c"}
