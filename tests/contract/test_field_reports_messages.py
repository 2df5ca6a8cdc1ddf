"""What people reported of messages elsewhere: kinds A, B, F, G, K, O and Q of the field reports.

Left out are what stands elsewhere (A3, B2: damaged rows of a SQLite file; B3, B4: usage; G2, G4,
G7 to G10, K1, K2, K8: sessions; K9: deletion; O3: life cycle), and the imports and exports of A1,
B1, O6 and Q1.
"""

import asyncio
import math
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from hermes_orm import (
    CompressionSessionClosedError,
    SessionDB,
    SessionTurnLeaseLostError,
)
from tests.contract.stories import Story, ids
from tests.contract.turns import assistant, contents, tool, user
from tests.raw import Raw

PEER = {"session_key": "agent:main:telegram:dm:42", "chat_id": "42", "user_id": "u1"}


async def three_turns(db: Any, session_id: str) -> list[int]:
    """Questions and answers, the second with a tool call; returns the row ids."""
    await db.append_messages_batch(
        session_id, [user("q1"), assistant("a1"), user("q2"), assistant("a2", "c"), user("q3")]
    )
    await db.append_message(session_id, "assistant", "a3")
    return [row["id"] for row in await db.get_messages(session_id)]


async def counted(db: Any, session_id: str) -> int:
    """The counter, which must equal the live rows."""
    count: int = (await db.get_session(session_id))["message_count"]
    assert count == len(await db.get_messages(session_id))
    return count


# A: text that the database or the driver refuses


async def test_a1_lone_surrogates_stop_nothing(db: Any, session: str) -> None:
    calls = [{"id": "c", "function": {"name": "f", "arguments": '{"x":"\ud83d"}'}}]
    row = assistant("a\ud83d b", reasoning="r\ud800", tool_calls=calls)
    details = [{"t": "\udc00"}]
    await db.append_message(session, **row, reasoning_details=details)
    await db.append_messages_batch(session, [{**row, "reasoning_details": details}])
    for found in await db.get_messages(session):
        assert (found["content"], found["reasoning"]) == ("a\ufffd b", "r\ufffd")
        assert found["tool_calls"] == calls
    for message in await db.get_messages_as_conversation(session):
        assert message["reasoning_details"] == details
    await db.replace_messages(session, [user("\ud800word")])
    await db.set_latest_user_api_content(session, "\ud800word", "sent\ud800")
    assert len(await db.search_messages("\ud800word")) == 1
    await db.archive_and_compact(session, [user("summary\ud800")])
    assert contents(await db.get_messages(session)) == ["summary\ufffd"]
    await db.create_session("t", "cli", system_prompt="p\ud800", model_config={"k": "\ud83d"})
    assert await db.get_session_model_config_value("t", "k") == "\ud83d"


async def test_a2_nul_characters_lose_nothing(db: Any, session: str) -> None:
    parts = [{"type": "text", "text": "a\x00b"}]
    calls = [{"id": "c", "function": {"name": "f", "arguments": '{"p":"\\u0000"}'}}]
    await db.append_message(session, "tool", "head\x00tail needle", tool_name="a\x00")
    await db.append_message(session, "user", parts)
    await db.append_message(
        session, "assistant", "", tool_calls=calls, display_metadata={"k\x00": "v"}
    )
    first, second, third = await db.get_messages(session)
    assert (first["content"], first["tool_name"]) == ("head\x00tail needle", "a\ufffd")
    assert second["content"] == parts
    assert (third["tool_calls"], third["display_metadata"]) == (calls, {"k\x00": "v"})
    assert len(await db.search_messages("tail")) == 1
    await db.search_messages("a\x00b")


async def test_a4_pictures_are_neither_found_nor_shown(db: Any, session: str) -> None:
    url = "data:image/png;base64," + "QUJD" * 50_000
    picture = {"type": "image_url", "image_url": {"url": url}}
    await db.append_message(session, "user", [picture, {"type": "text", "text": "what is this"}])
    for query, hits in [("image_url", 0), ("QUJDQUJD", 0), ("what is this", 1)]:
        assert len(await db.search_messages(query)) == hits, query
    (row,) = await db.list_sessions_rich()
    assert row["preview"].startswith("what is this")


async def test_a5_content_that_is_no_string(db: Any, session: str) -> None:
    given: list[Any] = [5, True, b"raw", None, "", [], {}, {"a": 1}]
    for content in given:
        await db.append_message(session, "user", content)
    expected: list[Any] = ["5", "1", "raw", None, "", [], {}, {"a": 1}]
    assert contents(await db.get_messages(session)) == expected


# B: numbers and time stamps


async def test_b1_absurd_time_stamps(db: Any, session: str, clock: Any) -> None:
    now = clock.time
    cases: list[tuple[Any, float]] = [
        *((value, now) for value in (8.4e252, math.inf, -math.inf, math.nan, 1.7e12)),
        *((value, now) for value in ("not-a-time", "2026-01-02T03:04:05Z")),
        *((-5, -5.0), ("1700000000.5", 1700000000.5), (True, 1.0)),
    ]
    for given, _ in cases:
        await db.append_message(session, "user", "x", timestamp=given)
    rows = await db.get_messages(session)
    assert [row["timestamp"] for row in rows] == [stored for _, stored in cases]
    (row,) = await db.list_sessions_rich(order_by_last_active=True)
    assert row["last_active"] <= now


async def test_b5_big_and_negative_limits(db: Any, session: str) -> None:
    await db.append_messages_batch(session, [user("x one"), user("x two")])
    assert await db.get_messages(session, limit=2**31 + 5, offset=2**31) == []
    for limit in (2**63, -1):
        assert len(await db.get_messages(session, limit=limit)) == 2
    assert len(await db.search_messages("x", limit=-1)) == 2
    assert len(await db.list_sessions_rich(limit=-1, offset=-1)) == 1
    around = await db.get_messages_around(session, 2**70)
    assert around == {"window": [], "messages_before": 0, "messages_after": 0}


async def test_b6_versions_are_row_ids(db: Any, session: str) -> None:
    for _ in range(50):
        row_id = await db.append_message(session, "user", "x")
        assert await db.get_active_message_watermark(session) == row_id


# F: undo and compaction


async def test_f1_counters_after_undo(db: Any, session: str) -> None:
    rows = await three_turns(db, session)
    await db.rewind_to_message(session, rows[4])
    assert await counted(db, session) == 4
    assert (await db.get_session(session))["tool_call_count"] == 1
    await db.append_message(session, "user", "again")
    assert await counted(db, session) == 5
    await db.rewind_to_message(session, rows[0])
    assert await counted(db, session) == 0
    await db.end_session(session, "cli_exit")
    await db.delete_empty_sessions()
    assert await db.get_session(session), "undone rows are history"


async def test_f2_undone_text_stays_out_of_windows(db: Any, session: str) -> None:
    rows = await three_turns(db, session)
    await db.rewind_to_message(session, rows[4])
    around = await db.get_messages_around(session, rows[3], 5)
    assert contents(around["window"]) == ["q1", "a1", "q2", "a2"]
    assert around["messages_after"] == 0
    assert "q3" not in contents((await db.get_anchored_view(session, rows[0], 10))["window"])


async def test_messages_44_and_63_after_compaction(db: Any, session: str) -> None:
    for number in range(6):
        role = "assistant" if number % 2 else "user"
        await db.append_message(session, role, f"m{number}")
    rows = [row["id"] for row in await db.get_messages(session)]
    await db.rewind_to_message(session, rows[4])
    assert await db.restore_rewound(session, rows[4]) == 2
    assert await counted(db, session) == 6
    assert await db.restore_rewound(session, rows[4]) == 0
    await db.archive_and_compact(session, [user("S")])
    assert await db.restore_rewound(session, 0) == 0
    assert contents(await db.get_messages(session)) == ["S"]
    around = await db.get_messages_around(session, rows[3], window=2)
    assert contents(around["window"]) == ["m1", "m2", "m3", "m4", "m5"]
    view = await db.get_anchored_view(session, rows[0], window=10)
    assert contents(view["window"]) == ["m0", "m1", "m2", "m3", "m4", "m5", "S"]


async def test_f3_undone_message_is_delivered_again(db: Any, session: str) -> None:
    row_id = await db.append_message(session, "user", "x", platform_message_id="tg-1")
    assert await db.has_platform_message_id(session, "tg-1")
    await db.rewind_to_message(session, row_id)
    assert not await db.has_platform_message_id(session, "tg-1")
    await db.append_message(session, "user", "x", platform_message_id="tg-1")
    await db.archive_and_compact(session, [user("S")])
    assert await db.has_platform_message_id(session, "tg-1")


async def test_f4_restoring_after_an_archiving_replace(db: Any, session: str) -> None:
    turns = [user("t0"), assistant("t1"), user("t2"), assistant("t3")]
    await db.append_messages_batch(session, turns)
    rows = await db.get_messages(session)
    options = {"active_only": True, "archive_dropped": True}
    await db.replace_messages(session, rows[:2], **options)
    assert await db.restore_rewound(session, rows[0]["id"]) == 2
    assert sorted(contents(await db.get_messages(session))) == ["t0", "t1", "t2", "t3"]
    assert await counted(db, session) == 4


async def test_f5_kept_tail_is_found_once(db: Any, session: str) -> None:
    await three_turns(db, session)
    await db.append_message(session, "user", "singular phrase")
    for _ in range(2):
        tail = (await db.get_messages(session))[-2:]
        await db.archive_and_compact(session, [user("summary"), *tail])
        assert len(await db.search_messages("singular phrase")) == 1
    shown = contents(await db.get_messages(session, include_inactive=True))
    assert shown.count("singular phrase") == 3


async def test_f6_f8_a_bad_entry_changes_nothing(db: Any, session: str) -> None:
    await db.append_message(session, "user", "keep")
    before = await db.get_session(session), await db.get_messages(session, include_inactive=True)
    for operation in ("archive_and_compact", "replace_messages", "append_messages_batch"):
        with pytest.raises(TypeError):
            await getattr(db, operation)(session, [user("x"), "y", user("z")])
        after = await db.get_session(session), await db.get_messages(session, True)
        assert after == before, operation
    await db.replace_messages(session, [user("x"), {"role": None, "content": "y"}])
    assert [row["role"] for row in await db.get_messages(session)] == ["user", "unknown"]


async def test_f7_archived_rows_stay_in_the_archive(db: Any, session: str) -> None:
    await three_turns(db, session)
    await db.archive_and_compact(session, [user("S")])
    assert contents(await db.get_messages(session)) == ["S"]
    assert contents(await db.get_messages_as_conversation(session)) == ["S"]
    assert await counted(db, session) == 1
    assert len(await db.get_messages(session, include_inactive=True)) == 7


async def test_f9_each_question_is_an_undo_point(db: Any, session: str) -> None:
    await db.append_messages_batch(session, [user("u1"), user("u2"), user("u3"), assistant("a3")])
    recent = await db.list_recent_user_messages(session)
    assert len({row["id"] for row in recent}) == 3
    repaired = await db.get_messages_as_conversation(
        session, repair_alternation=True, include_row_ids=True
    )
    assert [message["role"] for message in repaired] == ["user", "assistant"]


# G: lineage, resume, routing


async def test_g1_compressed_without_successor(db: Any, session: str) -> None:
    await db.append_message(session, "user", "x")
    await db.end_session(session, "compression")
    with pytest.raises(CompressionSessionClosedError):
        await db.append_message(session, "user", "y")
    await db.create_session(
        "branch", "cli", parent_session_id=session, model_config={"_branched_from": session}
    )
    assert await db.try_acquire_compression_lock(session, "h")
    assert not await db.reopen_orphaned_compression_session(session)
    await db.release_compression_lock(session, "h")
    assert await db.reopen_orphaned_compression_session(session)
    await db.append_message(session, "user", "y")
    await db.end_session(session, "compression")
    await db.create_session("child", "cli", parent_session_id=session)
    assert not await db.reopen_orphaned_compression_session(session)


@pytest.mark.parametrize("reason", ["session_reset", "ws_orphan_reap"])
async def test_g3_stale_sibling_does_not_win(db: Any, story: Story, reason: str) -> None:
    for number, (stale, live) in enumerate([(2, 3), (3, 2)]):
        parent, old, new = (f"{name}{number}" for name in ("p", "stale", "live"))
        await story.new(parent, 1)
        await story.end(parent, "compression", 2)
        await story.new(old, stale, parent=parent)
        await story.end(old, reason, 9)
        await story.new(new, live, parent=parent)
        for session_id in (parent, old, new):
            await story.msg(session_id)
        assert await db.get_compression_tip(parent) == new
        assert await db.resolve_resume_session_id(parent) == new


async def test_g5_g6_one_published_continuation(db: Any) -> None:
    await db.create_session("p", "telegram", **PEER, origin_json="{}")
    await db.append_message("p", "user", "x")
    assert await db.try_acquire_compression_lock("p", "first")
    options = {"source": "telegram", "messages": [user("S")], "compression_lock_holder": "first"}
    await db.publish_compression_child(parent_session_id="p", child_session_id="c1", **options)
    child = await db.get_session("c1")
    assert {name: child[name] for name in PEER} == PEER
    assert child["origin_json"] == "{}"
    with pytest.raises(RuntimeError):
        await db.publish_compression_child(parent_session_id="p", child_session_id="c2", **options)
    assert await db.get_session("c2") is None
    assert not await db.try_acquire_compression_lock("p", "late")


# K: locks, leases, contention


async def test_k3_lock_of_a_dead_process(db: Any, raw: Raw, session: str) -> None:
    assert await db.try_acquire_compression_lock(session, "pid=999999999:tid=1:x")
    taken_over = await db.try_acquire_compression_lock(session, "other")
    assert taken_over != raw.is_postgres  # hosts share that table: only time tells there
    await db.create_session("t", "cli")
    assert await db.try_acquire_compression_lock("t", "remote:x")
    assert not await db.try_acquire_compression_lock("t", "other")


async def test_k4_k5_k6_late_holders(db: Any, session: str) -> None:
    assert await db.try_acquire_compression_lock(session, "a", 0.05)
    await asyncio.sleep(0.1)
    assert await db.refresh_compression_lock(session, "a", 300)
    assert not await db.try_acquire_compression_lock(session, "b")
    assert await db.try_acquire_session_turn_lease(session, "a", ttl_seconds=0.1)
    await asyncio.sleep(0.2)
    assert await db.try_acquire_session_turn_lease(session, "b")
    assert not await db.refresh_session_turn_lease(session, "a")
    await db.release_session_turn_lease(session, "a")
    with pytest.raises(SessionTurnLeaseLostError):
        await db.append_message(session, "user", "stale", turn_lease_holder="a")
    assert await db.append_message(session, "user", "x", turn_lease_holder="b")
    waits = {"wait_seconds": 0.05, "poll_interval_seconds": 0.02}
    assert not await db.acquire_session_turn_lease(session, "a", **waits)
    assert await counted(db, session) == 1


async def test_k7_no_deadlock_of_one_session(
    db: Any, open_store: Callable[..., Any], session: str
) -> None:
    async def busy(store: Any, name: str) -> None:
        for number in range(15):
            await store.append_message(session, "user", f"{name}{number}")
            await store.update_token_counts(session, input_tokens=1)
            with suppress(sqlite3.OperationalError):  # it gives up soon, by design
                await store.touch_session_activity(session)
            await store.set_session_title(session, f"{name}{number}")

    stores = [db, open_store()]
    await asyncio.gather(*(busy(store, f"{i}{j}-") for i, store in enumerate(stores) for j in "ab"))
    assert await counted(db, session) == 60
    assert (await db.get_session(session))["input_tokens"] == 60


# O: async life cycle


async def test_o1_cancelled_appends(db: Any, session: str) -> None:
    for number in range(40):
        task = asyncio.create_task(db.append_message(session, "user", "x"))
        await asyncio.sleep(number % 5 / 1000)
        task.cancel()
        await asyncio.wait([task])
    async with asyncio.timeout(15):
        await db.append_message(session, "user", "last")
    await counted(db, session)


def test_o2_process_ends_without_close(location: str) -> None:
    script = (
        "import asyncio, sys, hermes_orm\n"
        "asyncio.run(hermes_orm.SessionDB(sys.argv[1]).set_meta('k', 'v'))\n"
    )
    folder = str(Path(__file__).parents[2])
    subprocess.run([sys.executable, "-c", script, location], cwd=folder, check=True, timeout=60)


def test_o5_o7_loops_one_after_another_leave_nothing(location: str) -> None:
    before = threading.active_count()

    async def once() -> None:
        async with SessionDB(location) as other:
            await other.set_meta("k", "w")

    for _ in range(5):
        asyncio.run(once())
    assert threading.active_count() == before


def test_o4_construction_does_nothing(tmp_path: Path) -> None:
    for location in (str(tmp_path / "no" / "x.db"), "postgresql+asyncpg://u@nowhere.invalid/db"):
        SessionDB(location)
    assert not (tmp_path / "no").exists()


# Q: what the model gets back


async def test_q1_clock_that_goes_backwards(db: Any, session: str) -> None:
    await db.append_message(session, **assistant("", "c", timestamp=1002))
    await db.append_message(session, **tool("42", "c", timestamp=1001))
    for rows in (
        await db.get_messages(session),
        await db.get_messages_as_conversation(session),
        (await db.get_resume_conversations(session))[0],
    ):
        assert [row["role"] for row in rows] == ["assistant", "tool"]


async def test_q2_reasoning_comes_back(db: Any, session: str) -> None:
    thoughts = {
        "reasoning": "r",
        "reasoning_content": "gAAA==\n \u00e9",
        "reasoning_details": [{"type": "x", "data": "gAAA=="}],
        "codex_reasoning_items": [{"id": "rs"}],
        "codex_message_items": [{"id": "ms"}],
        "finish_reason": "stop",
    }
    await db.append_message(session, "assistant", "a", **thoughts)
    (message,) = await db.get_messages_as_conversation(session)
    assert {name: message[name] for name in thoughts} == thoughts


async def test_q3_crash_between_calls_and_answer(
    db: Any, session: str, open_store: Callable[..., Any]
) -> None:
    turns = [user("q"), assistant("", "c1", "c2"), tool("1", "c1"), user("go on")]
    await db.append_messages_batch(session, turns)
    await db.append_message(session, **tool("lost", "c9"))
    model, _ = await open_store().get_resume_conversations(session)
    results = {message.get("tool_call_id") for message in model if message["role"] == "tool"}
    assert "c9" not in results
    assert len(await db.get_messages(session)) == 5


async def test_q4_resuming_a_continuation(db: Any, story: Story) -> None:
    await story.chain()
    for session_id in ("root", "mid", "tip"):
        await story.msg(session_id, session_id)
    model, shown = await db.get_resume_conversations("tip")
    assert contents(model) == ["tip"]
    assert contents(shown) == ["root", "mid", "tip"]
    assert ids(await db.list_sessions_rich()) == ["tip"]
