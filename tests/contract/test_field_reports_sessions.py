"""What people reported of sessions elsewhere: kinds G, H, K and P of the field reports.

Most of these reports are covered where their operation is tested; here is what is left.
"""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from hermes_orm import SessionDB
from tests.contract.stories import Story, ids
from tests.raw import Raw

PEER = {"session_key": "agent:main:telegram:dm:42", "chat_id": "42", "user_id": "u1"}

# G: lineage, resume, routing


async def test_g2_two_hops_to_the_live_session(db: SessionDB, story: Story) -> None:
    await story.chain()
    for session_id in ("root", "mid", "tip"):
        await story.msg(session_id)
    assert await db.get_compression_tip("root") == "tip"
    assert await db.resolve_resume_session_id("root") == "tip"


@pytest.mark.parametrize("is_helper", [True, False])
async def test_g4_g5_routing_goes_to_a_continuation_and_to_no_helper(
    db: SessionDB, is_helper: bool
) -> None:
    await db.create_session("p", "telegram", **PEER, cwd="/w", origin_json="{}", display_name="Ann")
    await db.end_session("p", "compression")
    config = {"_delegate_from": "p"} if is_helper else None
    source = "subagent" if is_helper else "telegram"
    await db.create_session("c", source, parent_session_id="p", model_config=config)
    child: Any = await db.get_session("c")
    routing = {**PEER, "origin_json": "{}", "display_name": "Ann"}
    expected = dict.fromkeys(routing) if is_helper else routing
    assert {name: child[name] for name in routing} == expected
    assert child["cwd"] == "/w"


async def test_g7_chain_is_archived_and_comes_back_as_a_whole(db: SessionDB, story: Story) -> None:
    await story.chain()
    await db.set_session_archived("root", True)
    assert await db.list_sessions_rich() == []
    await db.set_session_archived("tip", False)
    assert ids(await db.list_sessions_rich()) == ["tip"]
    await story.raw.execute("UPDATE sessions SET archived = 1 WHERE id = 'root'")
    assert await db.list_sessions_rich() == [], "filters look at the listed row, the root"


async def test_g8_empty_sessions_are_stepped_over(db: SessionDB, story: Story) -> None:
    await story.new("a", 1)
    await story.end("a", "compression", 2)
    await story.new("b", 3, parent="a")
    await story.msg("b")
    await story.new("lone", 4)
    assert await db.resolve_resume_session_id("a") == "b"
    assert await db.resolve_resume_session_id("nope") == "nope"
    assert await db.resolve_resume_session_id("lone") == "lone"


async def test_g9_answers_in_a_ring_are_the_same_everywhere(db: SessionDB, story: Story) -> None:
    await story.new("a", 1)
    await story.new("b", 2, parent="a")
    await story.raw.execute("UPDATE sessions SET parent_session_id = 'b' WHERE id = 'a'")
    for session_id in "ab":
        await story.end(session_id, "compression", 3)
    async with asyncio.timeout(20):
        answers = [
            (
                await db.get_compression_tip(session_id),
                await db.get_conversation_root(session_id),
                await db.get_compression_lineage(session_id),
                await db.resolve_resume_session_id(session_id),
            )
            for session_id in "ab"
        ]
        listed = await db.list_sessions_rich(include_children=True)
        assert await db.get_messages_as_conversation("a", include_ancestors=True) == []
    assert answers == [("a", "a", ["a", "b"], "a"), ("b", "b", ["b", "a"], "b")]
    assert ids(listed) == ["b", "a"]


async def test_g10_nothing_but_reopening_revives_a_session(db: SessionDB, open_store: Any) -> None:
    await db.create_session("s", "telegram", **PEER)
    await db.end_session("s", "session_reset")
    await db.create_session("next", "telegram", parent_session_id="s", **PEER)
    await db.close()
    again = open_store()
    await again.ensure_session("s", "telegram", **PEER)
    await again.append_message("s", "user", "late")
    await again.touch_session_activity("s")
    await again.set_session_title("s", "T")
    await again.end_session("s", "agent_close")
    rows = await again.list_sessions_rich(session_key=PEER["session_key"])
    assert {row["id"]: row["end_reason"] for row in rows} == {"s": "session_reset", "next": None}
    assert await again.resolve_resume_session_id("s") == "s", "no reset is resumed for it"
    await again.reopen_session("s")
    assert (await again.get_session("s"))["ended_at"] is None


# H: titles and names


async def test_h1_the_same_automatic_title_twice(db: SessionDB) -> None:
    for session_id in "ab":
        await db.create_session(session_id, "cli")
    assert await db.set_auto_title_if_empty("a", "Intro") is True
    with pytest.raises(ValueError, match="already in use by session 'a'"):
        await db.set_auto_title_if_empty("b", "Intro")
    assert await db.get_session_title("b") is None
    assert await db.get_next_title_in_lineage("Intro") == "Intro #2"


async def test_h5_wildcards_in_names(db: SessionDB, story: Story) -> None:
    titles = ["100% done", "100X done #7", "user_auth #3", "userXauth #9"]
    for session_id, title in zip(["k_0", "kX1", "c", "d"], titles, strict=True):
        await story.new(session_id, title=title)
    assert await db.get_next_title_in_lineage("100% done") == "100% done #2"
    assert await db.get_next_title_in_lineage("user_auth") == "user_auth #4"
    assert await db.resolve_session_id("k_") == "k_0"


# K: locks and contention


@contextmanager
def locked(raw: Raw, seconds: float) -> Iterator[None]:
    """Another connection holds the whole store for a while."""
    with raw.engine.connect() as connection:
        if raw.is_postgres:
            connection.exec_driver_sql("LOCK TABLE sessions, messages IN ACCESS EXCLUSIVE MODE")
        else:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        driver: Any = connection.connection.driver_connection
        timer = threading.Timer(seconds, driver.rollback)
        timer.start()
        yield
        timer.join()


async def test_k1_writers_wait_for_another_process(
    db: SessionDB, open_store: Any, raw: Raw, session: str
) -> None:
    first = open_store()
    with locked(raw, 1.5):
        await asyncio.gather(
            db.append_message(session, "user", "waited"),
            db.set_session_title(session, "waited"),
            first.create_session("new", "cli"),
        )
    assert await db.message_count(session) == 1
    assert await db.get_session_title(session) == "waited"
    assert await first.get_session("new") is not None


async def test_k2_failure_reaches_the_caller(db: SessionDB, raw: Raw) -> None:
    await db.create_session("before", "cli", system_prompt="P")
    await raw.execute("ALTER TABLE system_prompts RENAME TO gone")
    with pytest.raises(Exception, match="system_prompts"):
        await db.create_session("s", "cli", system_prompt="Q")
    await raw.execute("ALTER TABLE gone RENAME TO system_prompts")
    with pytest.raises(ValueError, match="Unknown session 's'"):
        await db.append_message("s", "user", "not skipped in silence")
    await db.create_session("s", "cli", system_prompt="Q")
    await db.append_message("s", "user", "hi")
    assert await db.message_count("s") == 1


async def test_k8_no_count_is_lost(db: SessionDB, open_store: Any, session: str) -> None:
    async def fill(store: SessionDB) -> None:
        for _ in range(20):
            await store.append_message(session, "user", "x")

    await asyncio.gather(*(fill(store) for store in [db, *(open_store() for _ in range(4))]))
    row: Any = await db.get_session(session)
    assert row["message_count"] == await db.message_count(session) == 100


# P: size and speed


async def test_p3_compact_rows_need_no_prompts(db: SessionDB, raw: Raw) -> None:
    await db.create_session("s", "cli", system_prompt="P")
    await raw.execute("ALTER TABLE system_prompts RENAME TO gone")
    for by_activity in (False, True):
        rows = await db.list_sessions_rich(compact_rows=True, order_by_last_active=by_activity)
        assert ids(rows) == ["s"]
