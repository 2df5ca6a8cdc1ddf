"""Which sessions a list shows, in which order, and as what."""

from typing import Any

import pytest

from hermes_orm import SessionDB
from hermes_orm.rows import CompactSessionRow, SessionRow
from tests.contract.stories import Story, ids


async def test_sub_agents_and_plain_children_are_not_listed(db: SessionDB, story: Story) -> None:
    await story.new("p", 1)
    await story.new("sub", 2, parent="p")
    await story.new("del", 3, parent="p", config={"_delegate_from": "p"})
    await story.new("br", 4, parent="p", config={"_branched_from": "p"})
    await story.new("rs", 5, parent="p", config={"_reset_from": "p"})
    await story.new("od", 6, config={"_delegate_from": "p"})
    await story.new("tool", 7, source="tool")
    assert ids(await db.list_sessions_rich()) == ["tool", "rs", "br", "p"]
    everything = await db.list_sessions_rich(include_children=True)
    assert ids(everything) == ["tool", "od", "rs", "br", "del", "sub", "p"]


async def test_children_of_a_branched_session_are_listed_from_its_end_on(
    db: SessionDB, story: Story
) -> None:
    await story.new("p", 1)
    await story.end("p", "branched", 5)
    for at in (4, 5, 6):
        await story.new(f"@{at}", at, parent="p")
    assert ids(await db.list_sessions_rich()) == ["@6", "@5", "p"]


async def test_legacy_reset_children_share_the_key_of_their_parent(
    db: SessionDB, story: Story
) -> None:
    await story.new("p", 1, session_key="k")
    await story.end("p", "session_switch", 2)
    await story.new("same", 3, parent="p", session_key="k")
    await story.new("other", 4, parent="p", session_key="z")
    await story.new("none", 5, parent="p")
    assert ids(await db.list_sessions_rich()) == ["same", "p"]


async def test_a_marker_that_was_inherited_says_nothing(db: SessionDB, story: Story) -> None:
    await story.new("p", 1)
    await story.new("br", 2, parent="p", config={"_branched_from": "p"})
    await story.end("br", "compression", 3)
    await story.new("next", 3, parent="br", config={"_branched_from": "p"})
    rows = await db.list_sessions_rich()
    assert [(row["id"], row.get("_lineage_root_id")) for row in rows] == [
        ("next", "br"),
        ("p", None),
    ]


async def test_a_compressed_conversation_is_shown_as_its_tip(db: SessionDB, story: Story) -> None:
    await story.chain(title="T", model="m-root", source="tg", cwd="/root", last_read_at=5.0)
    await story.raw.execute("UPDATE sessions SET model = 'm-tip', cwd = '/tip' WHERE id = 'tip'")
    await story.msg("tip", "live", 9)
    (row,) = await db.list_sessions_rich()
    assert row["id"] == "tip"
    assert row["_lineage_root_id"] == "root"
    assert (row["started_at"], row["last_active"], row["unread"]) == (1, 9, True)
    assert (row["preview"], row["title"], row["message_count"]) == ("live", None, 1)
    assert (row["ended_at"], row["end_reason"]) == (None, None)
    assert (row["source"], row["model"], row["cwd"]) == ("tg", "m-tip", "/tip")


async def test_projection_can_be_switched_off(db: SessionDB, story: Story) -> None:
    await story.chain(title="T")
    assert ids(await db.list_sessions_rich(project_compression_tips=False)) == ["root"]
    assert ids(await db.list_sessions_rich(include_children=True)) == ["tip", "mid", "root"]


async def test_title_and_prompt_of_a_projected_row_agree_with_their_source_and_hash(
    db: SessionDB, story: Story
) -> None:
    await db.create_session("root", "cli", system_prompt="of the root")
    await db.end_session("root", "compression")
    await db.create_session("tip", "cli", system_prompt="of the tip", parent_session_id="root")
    await story.raw.execute(
        "UPDATE sessions SET title = 'T', title_source = 'user' WHERE id = 'root'"
    )
    (row,) = await db.list_sessions_rich()
    tip = await db.get_session("tip")
    assert tip is not None
    assert (row["title"], row["title_source"]) == (None, None)
    assert row["system_prompt"] == "of the tip"
    assert row["system_prompt_hash"] == tip["system_prompt_hash"]


async def test_a_conversation_is_as_active_as_its_liveliest_session(
    db: SessionDB, story: Story
) -> None:
    await story.chain(title="T")
    await story.msg("tip", "live", 9)
    await story.new("z", 5)
    assert ids(await db.list_sessions_rich()) == ["z", "tip"]
    assert ids(await db.list_sessions_rich(order_by_last_active=True)) == ["tip", "z"]
    rows = await db.list_sessions_rich(order_by_last_active=True, include_children=True)
    assert ids(rows) == ["tip", "mid", "root", "z"]


async def test_a_message_of_another_program_counts(db: SessionDB, story: Story) -> None:
    await story.chain()
    await story.new("z", 5)
    assert ids(await db.list_sessions_rich(order_by_last_active=True)) == ["z", "tip"]
    await story.raw.execute(
        "INSERT INTO messages (session_id, role, content, timestamp) VALUES ('tip', 'user', 'x', 9)"
    )
    assert ids(await db.list_sessions_rich(order_by_last_active=True)) == ["tip", "z"]


async def test_reset_children_of_a_compressed_session_are_no_continuations(
    db: SessionDB, story: Story
) -> None:
    await story.new("p", 1, session_key="K")
    await story.end("p", "session_reset", 2)
    await story.new("rs", 2, parent="p", session_key="K")
    await db.reopen_session("p")
    await story.end("p", "compression", 3)
    await story.new("cont", 4, parent="p")
    await story.msg("rs", "late", 99)
    assert ids(await db.list_sessions_rich()) == ["rs", "cont"]


@pytest.mark.parametrize("by_activity", [False, True])
async def test_equal_times_are_ordered_by_id(
    db: SessionDB, story: Story, by_activity: bool
) -> None:
    for name in ("b", "c", "a", "e", "d"):
        await story.new(name, 1)
    pages = [
        ids(await db.list_sessions_rich(limit=2, offset=at, order_by_last_active=by_activity))
        for at in (0, 2, 4, 6)
    ]
    assert pages == [["e", "d"], ["c", "b"], ["a"], []]


async def test_equal_activity_is_ordered_by_start(db: SessionDB, story: Story) -> None:
    for at in range(8):
        await story.new(f"s{at}", at, last_activity_at=50.0)
    rows = await db.list_sessions_rich(limit=1, order_by_last_active=True)
    assert ids(rows) == ["s7"]


@pytest.mark.parametrize("by_activity", [False, True])
async def test_pinned_sessions_follow_the_page(
    db: SessionDB, story: Story, by_activity: bool
) -> None:
    await story.new("old", 0, pinned=1)
    await story.new("new", 1)

    async def listed(**options: Any) -> list[str]:
        return ids(await db.list_sessions_rich(order_by_last_active=by_activity, **options))

    assert await listed(limit=1) == ["new"]
    assert await listed(limit=1, include_pinned=True) == ["new", "old"]
    assert await listed(limit=0, include_pinned=True) == ["old"]
    assert await listed(limit=2, include_pinned=True) == ["new", "old"]
    assert await listed(limit=1, include_pinned=True, search_query="new") == ["new"]
    for unlimited in (-1, None):
        assert await listed(limit=unlimited) == ["new", "old"]
    assert await listed(limit=0) == []
    assert await listed(offset=-3, limit=1) == ["new"]


async def test_rows_have_the_keys_of_a_session_and_what_a_list_adds(db: SessionDB) -> None:
    await db.create_session("a", "cli", system_prompt="P")
    added = {"last_active", "preview", "unread"}
    (row,) = await db.list_sessions_rich()
    assert set(row) == set(SessionRow.__annotations__) | added
    assert {**row, **(await db.get_session("a") or {})} == row
    (compact,) = await db.list_sessions_rich(compact_rows=True)
    assert set(compact) == set(CompactSessionRow.__annotations__) | added
    assert {**row, **compact} == row


async def test_malformed_config_has_no_markers(db: SessionDB, story: Story) -> None:
    await story.new("p", 1)
    for text in ("{bad", "", "[1]", '{"_branched_from": NaN}', '"_branched_from"', "\\u0000"):
        await story.new(f"c{text}", 2, parent="p", model_config=text)
    assert ids(await db.list_sessions_rich()) == ["p"]
    assert ids(await db.list_sessions_rich(order_by_last_active=True)) == ["p"]


async def test_rings_are_walked_once(db: SessionDB, story: Story) -> None:
    for name, at in (("a", 1), ("b", 2), ("z", 3), ("self", 4)):
        await story.new(name, at)
    for child, parent in (("a", "b"), ("b", "a"), ("self", "self")):
        await story.raw.execute(
            "UPDATE sessions SET parent_session_id = ?, end_reason = 'compression', ended_at = 9"
            " WHERE id = ?",
            parent,
            child,
        )
    rows = await db.list_sessions_rich(include_children=True, order_by_last_active=True)
    assert sorted(ids(rows)) == ["a", "b", "self", "z"]
    assert ids(await db.list_sessions_rich()) == ["z"]
    found = await db.list_sessions_rich(include_children=True, id_query="a")
    assert ids(found) == ["b", "a"]


async def test_long_chains_are_followed_to_their_end(db: SessionDB, story: Story) -> None:
    ended = "'compression', 1.0"
    await story.raw.execute(
        "INSERT INTO sessions (id, source, started_at, end_reason, ended_at, parent_session_id) "
        "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 1200) "
        f"SELECT 's' || CAST(i AS TEXT), 'cli', i, {ended}, "
        "CASE WHEN i > 0 THEN 's' || CAST(i - 1 AS TEXT) END FROM n"
    )
    for by_activity in (False, True):
        (row,) = await db.list_sessions_rich(order_by_last_active=by_activity)
        assert (row["id"], row["_lineage_root_id"]) == ("s1200", "s0")
    (row,) = await db.list_sessions_rich(id_query="S1200")
    assert row["id"] == "s1200"


@pytest.mark.parametrize("by_activity", [False, True])
async def test_tips_prefer_compressed_then_open_then_lively_children(
    db: SessionDB, story: Story, by_activity: bool
) -> None:
    async def tip() -> str:
        (row,) = await db.list_sessions_rich(order_by_last_active=by_activity)
        return row["id"]

    await story.new("q", 1)
    await story.end("q", "compression", 2)
    await story.new("q1", 3, parent="q")
    await story.new("q2", 4, parent="q")
    assert await tip() == "q2"
    await story.msg("q1", "late", 50)
    assert await tip() == "q1"
    await story.end("q1", "done", 51)
    assert await tip() == "q2"
    await story.new("q3", 2.5, parent="q")
    await story.end("q3", "compression", 3)
    assert await tip() == "q3"


async def test_read_sessions_become_unread_by_activity(db: SessionDB, story: Story) -> None:
    async def unread() -> bool:
        (row,) = await db.list_sessions_rich()
        return row["unread"]

    await story.new("s", 1)
    await story.msg("s", "hi", 2)
    assert await unread() is False
    await story.raw.execute("UPDATE sessions SET last_read_at = 2.0")
    assert await unread() is False
    await story.msg("s", "more", 3)
    assert await unread() is True
    await story.raw.execute("UPDATE sessions SET last_read_at = 0.0")
    assert await unread() is True


def test_unread_compares_the_row_alone() -> None:
    unread = SessionDB.session_unread
    assert unread({}) is False
    assert unread({"last_read_at": 0.0, "last_active": 5}) is True
    assert unread({"last_read_at": 5, "last_active": 5}) is False
    assert unread({"last_read_at": 1, "last_active": 0, "started_at": 2}) is True


async def test_last_active_is_the_start_only_while_nothing_else_is_known(
    db: SessionDB, story: Story
) -> None:
    async def last_active() -> float:
        (row,) = await db.list_sessions_rich()
        return row["last_active"]

    await story.new("s", 10)
    assert await last_active() == 10
    await story.msg("s", "hi", 5)
    assert await last_active() == 5
    await story.raw.execute("UPDATE sessions SET last_activity_at = 7.0")
    assert await last_active() == 7
    await story.msg("s", "hi", 20)
    await story.raw.execute("UPDATE messages SET active = 0")
    assert await last_active() == 20
