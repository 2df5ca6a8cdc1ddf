"""Tips, roots, lineages and what to resume: sessions.md section 9."""

import asyncio
import logging
from typing import Any

import pytest

from tests.contract.stories import Story, ids

DELEGATE = {"_delegate_from": "p"}
FORKS: list[dict[str, Any]] = [
    {"config": {"_branched_from": "p"}},
    {"config": {"_delegate_from": "p"}},
    {"config": {"_reset_from": "p"}},
    {"config": {"_branched_from": "other"}},
    {"config": {"_delegate_from": 0}},
    {"source": "tool"},
]


async def new_p(story: Story, reason: str | None = "compression", **columns: Any) -> None:
    await story.new("p", 1, **columns)
    await story.end("p", reason, 2)


# Example 37, 41: a plain chain


async def test_chain(db: Any, story: Story) -> None:
    await story.chain()
    for session_id in ("root", "mid", "tip"):
        assert await db.get_compression_tip(session_id) == "tip"
        assert await db.get_compression_lineage(session_id) == ["root", "mid", "tip"]
        assert await db.get_conversation_root(session_id) == "root"
        assert await db.resolve_resume_session_id(session_id) == "tip"


@pytest.mark.parametrize("unknown", ["nope", "", None, "a\0", "a\ud800"])
async def test_unknown_sessions_come_back_as_they_are(db: Any, session: str, unknown: Any) -> None:
    assert await db.get_compression_tip(unknown) == unknown
    assert await db.resolve_resume_session_id(unknown) == unknown
    assert await db.get_conversation_root(unknown) == unknown
    assert await db.get_compression_lineage(unknown) == []
    assert await db.find_live_compression_child(unknown) is None


async def test_session_that_was_not_compressed_is_its_own_tip(db: Any, story: Story) -> None:
    await new_p(story, "done")
    await story.new("c", 3, parent="p")
    assert await db.get_compression_tip("p") == "p"
    assert await db.get_compression_lineage("p") == ["p"]
    assert await db.get_compression_lineage("c") == ["c"]
    assert await db.get_conversation_root("c") == "p"


async def test_empty_id_is_an_id(db: Any) -> None:
    await db.create_session("", "cli")
    await db.end_session("", "compression")
    await db.create_session("c", "cli", parent_session_id="")
    assert await db.get_compression_tip("") == "c"
    assert await db.get_compression_lineage("c") == ["", "c"]
    assert await db.get_conversation_root("c") == ""
    assert await db.resolve_resume_session_id("") == ""


async def test_root_of_an_empty_id_is_not_looked_for(db: Any) -> None:
    await db.create_session("p", "cli")
    await db.create_session("", "cli", parent_session_id="p")
    assert await db.get_conversation_root("") == ""


# Example 38: which of several continuations


async def test_tip_of_several_continuations(db: Any, story: Story) -> None:
    await story.new("q", 1)
    await story.end("q", "compression", 2)
    await story.new("q1", 3, parent="q")
    await story.new("q2", 4, parent="q")
    assert await db.get_compression_tip("q") == "q2"
    await story.msg("q1", "hi", 50)
    assert await db.get_compression_tip("q") == "q1"
    await story.end("q1", "done", 51)
    assert await db.get_compression_tip("q") == "q2"
    await story.new("q3", 2.5, parent="q")
    await story.end("q3", "compression", 3)
    assert await db.get_compression_tip("q") == "q3"


async def test_ties_go_to_the_latest_start_and_the_greatest_id(db: Any, story: Story) -> None:
    await new_p(story)
    for session_id, at in [("a", 5), ("c", 4), ("b", 5)]:
        await story.new(session_id, at, parent="p", last_activity_at=9.0)
    assert await db.get_compression_tip("p") == "b"
    assert await db.get_compression_lineage("p") == ["p", "c"]


@pytest.mark.parametrize("reason", ["session_reset", "ws_orphan_reap"])
@pytest.mark.parametrize("first", ["stale", "live"])
async def test_closed_sibling_does_not_hide_the_live_one(
    db: Any, story: Story, reason: str, first: str
) -> None:
    await new_p(story)
    for number, session_id in enumerate(sorted(["stale", "live"], key=lambda key: key != first)):
        await story.new(session_id, 3 + number, parent="p")
        await story.msg(session_id, "hi", 9 - number)
    await story.end("stale", reason, 10)
    assert await db.get_compression_tip("p") == "live"
    assert await db.resolve_resume_session_id("p") == "live"


# Example 39, 40, 42: forks


async def test_reset_child_is_no_continuation(db: Any, story: Story) -> None:
    await story.new("p", 1, session_key="K")
    await story.end("p", "session_reset", 1)
    await story.new("rs", 2, parent="p", session_key="K")
    await db.reopen_session("p")
    await story.end("p", "compression", 3)
    await story.new("cont", 4, parent="p")
    await story.msg("rs", "hi", 99)
    assert await db.get_compression_tip("p") == "cont"
    assert ids(await db.list_sessions_rich(order_by_last_active=True)) == ["rs", "cont"]


async def test_continuation_inherits_its_marker(db: Any, story: Story) -> None:
    await new_p(story, None)
    await story.new("d", 2, parent="p", config=DELEGATE)
    await story.end("d", "compression", 3)
    await story.new("d2", 3, parent="d", config=DELEGATE)
    assert await db.get_compression_tip("d") == "d2"
    assert await db.get_compression_lineage("d") == ["d", "d2"]
    assert await db.get_compression_lineage("d2") == ["d", "d2"]
    assert await db.get_conversation_root("d2") == "p"
    assert ids(await db.list_sessions_rich()) == ["p"]


async def test_lineage_of_a_compressed_branch(db: Any, story: Story) -> None:
    await story.new("root", 1)
    await story.end("root", "compression", 2)
    await story.new("b", 3, parent="root", config={"_branched_from": "root"})
    await story.end("b", "compression", 4)
    await story.new("c", 5, parent="b")
    assert await db.get_compression_lineage("b") == ["b", "c"]
    assert await db.get_compression_lineage("c") == ["b", "c"]
    assert await db.get_compression_lineage("root") == ["root"]
    assert await db.get_compression_tip("root") == "root"
    assert await db.get_conversation_root("c") == "root"


@pytest.mark.parametrize("fork", FORKS)
async def test_forks_carry_nothing_on(db: Any, story: Story, fork: dict[str, Any]) -> None:
    await new_p(story)
    await story.new("f", 3, parent="p", **fork)
    await story.msg("p")
    await story.msg("f")
    assert await db.get_compression_tip("p") == "p"
    assert await db.get_compression_lineage("p") == ["p"]
    assert await db.get_compression_lineage("f") == ["f"]
    assert await db.resolve_resume_session_id("p") == "p"
    assert await db.get_conversation_root("f") == "p"
    assert await db.find_live_compression_child("p") is None
    assert await db._is_compression_child_row(await db.get_session("f")) is False


async def test_malformed_config_has_no_markers(db: Any, story: Story) -> None:
    await new_p(story, model_config='{"_delegate_from')
    await story.new("c", 3, parent="p", model_config='{"_branched_from": "p"')
    await story.msg("c")
    assert await db.get_compression_tip("p") == "c"
    assert await db.get_compression_lineage("c") == ["p", "c"]
    assert await db.resolve_resume_session_id("p") == "c"
    assert await db._is_compression_child_row(await db.get_session("c")) is True


# Example 90: several continuations


async def test_lineage_leads_to_the_session_that_was_asked_for(db: Any, story: Story) -> None:
    await story.new("root", 1)
    await story.end("root", "compression", 2)
    await story.new("a", 2, parent="root")
    await story.new("b", 3, parent="root")
    await story.end("b", "compression", 4)
    await story.new("b2", 5, parent="b")
    assert await db.get_compression_lineage("root") == ["root", "a"]
    assert await db.get_compression_lineage("a") == ["root", "a"]
    assert await db.get_compression_lineage("b") == ["root", "b"]
    assert await db.get_compression_lineage("b2") == ["root", "b", "b2"]


# Example 43, 44, 45, 89: what to resume


async def test_resume_follows_plain_children_to_the_last_messages(db: Any, story: Story) -> None:
    for number, session_id in enumerate("abcd"):
        await story.new(session_id, number, parent="abcd"[number - 1] if number else None)
    assert await db.resolve_resume_session_id("a") == "a"
    await story.msg("b", "undone", active=0)
    assert await db.resolve_resume_session_id("a") == "b"
    await story.msg("d")
    assert await db.resolve_resume_session_id("b") == "d"
    assert await db.resolve_resume_session_id("c") == "d"


async def test_resume_leaves_forks_alone(db: Any, story: Story) -> None:
    await story.new("r", 1)
    await story.msg("r")
    forks: dict[str, Any] = {
        "branch": {"config": {"_branched_from": "r"}},
        "delegate": {"config": {"_delegate_from": "r"}},
        "reset": {"config": {"_reset_from": "r"}},
        "tool": {"source": "tool"},
    }
    for number, (session_id, fork) in enumerate(forks.items()):
        await story.new(session_id, 2 + number, parent="r", **fork)
        await story.msg(session_id)
    assert await db.resolve_resume_session_id("r") == "r"
    assert await db.get_conversation_root("branch") == "r"


async def test_resume_leaves_resets_by_key_alone(db: Any, story: Story) -> None:
    for parent, key, child_key in [("i", "K", "K"), ("j", "K2", "other")]:
        await story.new(parent, 1, session_key=key)
        await story.end(parent, "idle", 2)
        await story.new(f"{parent}1", 3, parent=parent, session_key=child_key)
        for session_id in (parent, f"{parent}1"):
            await story.msg(session_id)
    assert await db.resolve_resume_session_id("i") == "i"
    assert await db.resolve_resume_session_id("j") == "j1"


async def test_resume_leaves_branches_of_old_files_alone(db: Any, story: Story) -> None:
    await new_p(story, "branched")
    await story.end("p", "branched", 5)
    await story.new("c", 4, parent="p")
    await story.new("d", 6, parent="p")
    for session_id in "pcd":
        await story.msg(session_id)
    assert await db.resolve_resume_session_id("p") == "c"


async def test_resume_tries_one_path(db: Any, story: Story) -> None:
    await new_p(story, None)
    await story.new("older", 2, parent="p")
    await story.msg("older")
    await story.new("a", 3, parent="p")
    await story.new("b", 3, parent="p")
    assert await db.resolve_resume_session_id("p") == "p"
    await story.msg("a")
    assert await db.resolve_resume_session_id("p") == "p"
    await story.msg("b")
    assert await db.resolve_resume_session_id("p") == "b"


async def test_resume_goes_on_from_the_tip(db: Any, story: Story) -> None:
    await new_p(story)
    await story.msg("p")
    await story.new("t", 3, parent="p")
    assert await db.resolve_resume_session_id("p") == "t"
    await story.new("plain", 4, parent="t")
    await story.new("later", 9, parent="p", config={"_branched_from": "p"})
    await story.msg("plain")
    assert await db.resolve_resume_session_id("p") == "plain"


async def test_resume_survives_a_failing_database(
    db: Any, story: Story, raw: Any, caplog: Any
) -> None:
    await story.chain()
    await db.get_compression_tip("root")
    await raw.execute("ALTER TABLE messages RENAME TO gone")
    with caplog.at_level(logging.WARNING, "hermes_orm"):
        assert await db.resolve_resume_session_id("root") == "tip"
        await raw.execute("ALTER TABLE hermes_session_recency RENAME TO gone_too")
        assert await db.resolve_resume_session_id("root") == "root"
    assert any("'root'" in record.getMessage() for record in caplog.records)


async def test_resume_after_close_raises(db: Any) -> None:
    await db.get_meta("k")
    await db.close()
    with pytest.raises(RuntimeError, match="closed"):
        await db.resolve_resume_session_id("s")


# _is_compression_child_row


async def test_row_of_a_continuation(db: Any, story: Story) -> None:
    await story.chain()
    of_row = db._is_compression_child_row
    assert await of_row(await db.get_session("mid")) is True
    assert await of_row(await db.get_session("root")) is False
    assert await of_row({"parent_session_id": "root"}) is True
    assert await of_row({"parent_session_id": "root", "source": "tool"}) is False
    assert await of_row({"parent_session_id": "tip", "source": "cli"}) is False
    assert await of_row({"parent_session_id": "nope"}) is False
    marked = '{"_branched_from": "root"}'
    assert await of_row({"parent_session_id": "root", "model_config": marked}) is False
    for nothing in (None, {}, {"id": "mid"}, {"parent_session_id": "a\0"}):
        assert await of_row(nothing) is False


# Rings: example 74


async def ring(story: Story, *members: str) -> None:
    for member in members:
        await story.new(member, 1)
        await story.end(member, "compression", 2)
    for child, parent in zip(members, members[1:] + members[:1], strict=True):
        await story.raw.execute(
            "UPDATE sessions SET parent_session_id = ? WHERE id = ?", parent, child
        )


@pytest.mark.parametrize("members", [["a"], ["a", "b"], ["c", "a", "b"]])
async def test_walks_in_a_ring_end(db: Any, story: Story, members: list[str]) -> None:
    await ring(story, *members)
    await story.msg(members[0])
    for session_id in members:
        async with asyncio.timeout(30):
            tip = await db.get_compression_tip(session_id)
            root = await db.get_conversation_root(session_id)
            resume = await db.resolve_resume_session_id(session_id)
            lineage = await db.get_compression_lineage(session_id)
        assert {tip, root} <= set(members)
        assert resume == members[0]
        assert sorted(lineage) == sorted(members)


async def test_ring_is_listed_and_pinned(db: Any, story: Story) -> None:
    await ring(story, "a", "b")
    await story.new("z", 5)
    listed = await db.list_sessions_rich(include_children=True, order_by_last_active=True)
    assert sorted(ids(listed)) == ["a", "b", "z"]
    assert await db.set_session_pinned("a", True) is True
    pinned = [(await db.get_session(session_id))["pinned"] for session_id in "abz"]
    assert pinned == [1, 1, 0]


async def test_walks_into_a_ring_end(db: Any, story: Story) -> None:
    await ring(story, "b", "c")
    await story.new("a", 3, parent="b")
    await story.end("a", "compression", 4)
    await story.new("a2", 5, parent="a")
    assert await db.get_conversation_root("a2") == "b"
    assert await db.get_compression_tip("a") == "a2"
    assert await db.get_compression_lineage("a2") == ["c", "b", "a", "a2"]
    assert await db.resolve_resume_session_id("a") == "a2"


# Chains of any length: X3


@pytest.mark.parametrize("length", [150, 10_000])
async def test_long_chains(db: Any, raw: Any, length: int) -> None:
    await raw.execute(
        "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?) "
        "INSERT INTO sessions (id, source, started_at, parent_session_id, ended_at, end_reason) "
        "SELECT 'c' || i, 'cli', i, CASE WHEN i > 0 THEN 'c' || (i - 1) END, i + 1, 'compression' "
        "FROM n",
        length,
    )
    chain = [f"c{number}" for number in range(length)]
    await raw.execute("INSERT INTO messages (session_id, role, timestamp) VALUES ('c9', 'user', 1)")
    async with asyncio.timeout(30):
        assert await db.get_compression_tip("c0") == chain[-1]
        assert await db.get_conversation_root(chain[-1]) == "c0"
        assert await db.get_compression_lineage("c5") == chain
        assert await db.resolve_resume_session_id("c5") == chain[-1]
        await raw.execute("UPDATE sessions SET end_reason = 'done'")
        assert await db.get_compression_tip("c0") == "c0"
        assert await db.resolve_resume_session_id("c5") == "c9"
