"""What the filters and queries of a list let through."""

from typing import Any

import pytest

from hermes_orm import SessionDB
from tests.contract.stories import Story, ids

ORDERS = pytest.mark.parametrize("by_activity", [False, True])


@ORDERS
async def test_sources(db: SessionDB, story: Story, by_activity: bool) -> None:
    for at, source in enumerate(["", "cli", "tg", "tool"]):
        await story.new(f"s{at}", at, source=source)

    async def listed(**filters: Any) -> list[str]:
        return ids(await db.list_sessions_rich(order_by_last_active=by_activity, **filters))

    assert await listed() == ["s3", "s2", "s1", "s0"]
    assert await listed(source="tg") == ["s2"]
    assert await listed(source="tg", sources=["cli"]) == ["s2"]
    assert await listed(sources=["cli", "tool", "nope"]) == ["s3", "s1"]
    assert await listed(exclude_sources=["cli", "tool"]) == ["s2", "s0"]
    assert await listed(source="tg", exclude_sources=["tg"]) == []
    for none in ("", None):
        assert await listed(source=none, sources=[], exclude_sources=[]) == ["s3", "s2", "s1", "s0"]
    assert await listed(source="c\x00li") == []
    assert await listed(sources=["tg\ud800", "tg"]) == ["s2"]
    assert await listed(exclude_sources=["tg\x00", "tg"]) == ["s3", "s1", "s0"]


@ORDERS
async def test_flags_key_and_number_of_messages(
    db: SessionDB, story: Story, by_activity: bool
) -> None:
    await story.new("plain", 1, session_key="k")
    await story.new("archived", 2, archived=1)
    await story.new("hidden", 3, hidden=1, message_count=2)

    async def listed(**filters: Any) -> list[str]:
        return ids(await db.list_sessions_rich(order_by_last_active=by_activity, **filters))

    assert await listed() == ["plain"]
    assert await listed(include_archived=True) == ["archived", "plain"]
    assert await listed(archived_only=True, include_archived=True) == ["archived"]
    assert await listed(include_hidden=True) == ["hidden", "plain"]
    assert await listed(include_hidden=True, min_message_count=2) == ["hidden"]
    assert await listed(min_message_count=-1) == ["plain"]
    assert await listed(session_key="k") == ["plain"]
    assert await listed(session_key="other") == []
    assert await listed(session_key="") == ["plain"]


@ORDERS
async def test_filters_look_at_the_root_and_not_at_the_tip(
    db: SessionDB, story: Story, by_activity: bool
) -> None:
    await story.chain(source="tg")
    await story.raw.execute("UPDATE sessions SET archived = 1 WHERE id = 'tip'")
    rows = await db.list_sessions_rich(source="tg", order_by_last_active=by_activity)
    assert ids(rows) == ["tip"]
    assert await db.list_sessions_rich(source="cli", order_by_last_active=by_activity) == []


@ORDERS
async def test_paths_match_as_whole_segments(
    db: SessionDB, story: Story, by_activity: bool
) -> None:
    paths = ["/w", "/w/x", "/w2", "/w\\x", "/w/", "/a_b/c", "/aXb/c"]
    for at, (name, cwd) in enumerate(zip("abcdefg", paths, strict=True)):
        await story.new(name, at, cwd=cwd)
    await story.new("none", 9)

    async def within(prefix: str | None) -> str:
        rows = await db.list_sessions_rich(cwd_prefix=prefix, order_by_last_active=by_activity)
        return "".join(sorted(ids(rows)))

    assert await within("/w") == "abde"
    assert await within("/w/") == "abde"
    assert await within("/w\\") == "abde"
    assert await within("/a_b") == "f"
    assert await within("/nope") == ""
    assert await within("/w\x00") == ""
    assert await within("") == await within(None) == "abcdefgnone"


async def test_the_root_holds_every_absolute_path_and_case_counts(
    db: SessionDB, story: Story
) -> None:
    for at, (name, cwd) in enumerate([("a", "/w"), ("b", "/W/x"), ("c", "/"), ("d", "\\w")]):
        await story.new(name, at, cwd=cwd)
    assert ids(await db.list_sessions_rich(cwd_prefix="/")) == ["c", "b", "a"]
    assert ids(await db.list_sessions_rich(cwd_prefix="\\")) == ["d"]
    assert ids(await db.list_sessions_rich(cwd_prefix="/w")) == ["a"]


@ORDERS
@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("an94", ["root-1"]),
        ("an 94", ["root-1"]),
        ("notesv2", ["root-1"]),
        ("ROOT", ["root-1"]),
        ("%", ["x_y"]),
        ("_", ["x_y"]),
        ("", ["x_y", "root-1"]),
        (" sure ", ["x_y"]),
        ("\\", []),
        ("-.", []),
        ("x\x00", []),
        ("\ud800", []),
        ("x" * 60_000, []),
    ],
)
async def test_search_looks_at_titles_and_ids(
    db: SessionDB, story: Story, by_activity: bool, query: str, expected: list[str]
) -> None:
    await story.new("root-1", 1, title="AN-94 Notes.v2")
    await story.new("x_y", 2, title="100% sure")
    rows = await db.list_sessions_rich(search_query=query, order_by_last_active=by_activity)
    assert ids(rows) == expected


async def test_search_folds_ascii_letters_only(db: SessionDB, story: Story) -> None:
    await story.new("a", 1, title="École du Nord")
    assert ids(await db.list_sessions_rich(search_query="École")) == ["a"]
    assert ids(await db.list_sessions_rich(search_query="ÉCOLE DU")) == ["a"]
    assert ids(await db.list_sessions_rich(search_query="école")) == []


@ORDERS
async def test_queries_look_at_the_whole_conversation_below_a_row(
    db: SessionDB, story: Story, by_activity: bool
) -> None:
    await story.chain()
    await story.new("fork", 4, parent="root", config={"_branched_from": "root"}, title="Forked")
    await story.raw.execute("UPDATE sessions SET title = 'In the middle' WHERE id = 'mid'")

    async def listed(**queries: Any) -> list[str]:
        return ids(await db.list_sessions_rich(order_by_last_active=by_activity, **queries))

    assert await listed(id_query="TIP") == ["tip"]
    assert await listed(id_query="o") == ["fork", "tip"]
    assert await listed(search_query="middle") == ["tip"]
    assert await listed(search_query="forked") == ["fork"]
    assert await listed(id_query="tip", search_query="middle") == ["tip"]
    assert await listed(id_query="tip", search_query="forked") == []
    assert await listed(id_query="  ") == ["fork", "tip"]
    assert await listed(include_children=True, search_query="middle") == ["mid", "root"]
