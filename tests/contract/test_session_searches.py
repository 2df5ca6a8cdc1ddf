"""Sessions found by workspace, by id, and by how they begin."""

from typing import Any

from hermes_orm import ActiveSessionRow, SessionDB
from hermes_orm.rows import CompactSessionRow, SessionRow
from tests.contract.conftest import Sent
from tests.contract.stories import Story, ids

P = "[IMPORTANT: The user has invoked the "
NEVER = ("nope", "", None, "a\x00", "a\ud800")


async def test_one_row_is_what_a_list_shows_of_it(db: SessionDB, story: Story, sent: Sent) -> None:
    await db.create_session("a", "cli", system_prompt="P")
    await story.chain(hidden=1, archived=1, last_read_at=1.0)
    await story.new("delegate", 4, parent="root", config={"_delegate_from": "root"})
    await story.msg("root", "hi", 8)
    added = {"last_active", "preview", "unread"}
    listed = await db.list_sessions_rich(
        include_children=True, include_hidden=True, include_archived=True
    )
    sent()
    for row in listed:
        assert await db.get_session_rich_row(row["id"]) == row
        assert set(row) == set(SessionRow.__annotations__) | added
        compact = await db.get_session_rich_row(row["id"], compact_rows=True)
        assert compact is not None
        assert set(compact) == set(CompactSessionRow.__annotations__) | added
        assert {**row, **compact} == row
    assert sent() == 2 * len(listed)
    root = await db.get_session_rich_row("root")
    assert root is not None
    assert (root["id"], root["preview"], root["unread"]) == ("root", "hi", True), "no projection"
    missing: Any
    for missing in NEVER:
        assert await db.get_session_rich_row(missing) is None


async def test_search_shows_sessions_of_all_kinds_the_last_active_first(
    db: SessionDB, story: Story, sent: Sent
) -> None:
    place = {"cwd": "/w/x"}
    await story.new("a", 1, **place, git_repo_root="/w", archived=1)
    await story.new("b", 2, **place, hidden=1, source="tg")
    await story.new("c", 3, cwd="/w", git_repo_root="/z")
    await story.new("d", 4, parent="b", config={"_delegate_from": "b"}, **place)

    async def found(**arguments: Any) -> str:
        return "".join(ids(await db.search_sessions(**arguments)))

    sent()
    assert await found() == "dcba"
    assert sent() == 1
    for page, expected in (
        ({"limit": 2, "offset": 1}, "cb"),
        ({"limit": 0}, ""),
        ({"limit": -1}, "dcba"),
        ({"limit": None, "offset": -3}, "dcba"),
        ({"offset": 4}, ""),
        ({"source": "tg"}, "b"),
        ({"source": ""}, "dcba"),
        ({"source": "t\x00g"}, ""),
    ):
        assert await found(**page) == expected, page
    await story.msg("a", "late", 9)
    assert await found(limit=3) == "adc"
    await story.raw.execute("UPDATE sessions SET started_at = 7, last_activity_at = 7.5")
    assert await found() == "adcb", "equal times in the order of ids"
    await story.raw.execute("UPDATE sessions SET started_at = 6 WHERE id = 'd'")
    assert await found() == "acbd", "equal activity in the order of starts"


async def test_a_workspace_is_a_repository_or_a_directory_without_one(
    db: SessionDB, story: Story
) -> None:
    places: list[tuple[str | None, str | None]] = [
        ("/w/x", "/w"),
        ("/w/x", None),
        ("/w", "/z"),
        ("/w\\x", ""),
        ("/w2", None),
    ]
    places += [("/W/x", None), ("/", None), ("\\", "/"), (None, "/w/"), ("/a_b", None)]
    for at, (cwd, root) in enumerate(places):
        await story.new("abcdefghij"[at], at, cwd=cwd, git_repo_root=root)
    everything = "jihgfedcba"
    for key, expected in (
        ("/w", "dba"),
        ("/w/", "dba"),
        ("/w\\", "dba"),
        ("/z", "c"),
        ("/a%b", ""),
        ("/", "jhgfedb"),
        ("\\", ""),
        ("/w\x00", ""),
        ("", everything),
        (None, everything),
    ):
        assert "".join(ids(await db.search_sessions(workspace_key=key))) == expected, key


async def test_search_returns_whole_sessions(db: SessionDB, story: Story) -> None:
    await db.create_session("a", "cli", system_prompt="P")
    await story.msg("a", "hi", 9)
    (row,) = await db.search_sessions()
    assert row == {**(await db.get_session("a") or {}), "last_active": 9}
    assert set(row) == set(ActiveSessionRow.__annotations__)


async def test_the_likest_id_comes_first(db: SessionDB, story: Story, sent: Sent) -> None:
    for at, name in enumerate(["abc", "xabc", "abcd", "zzabc"]):
        await story.new(name, at)
    sent()
    assert ids(await db.search_sessions_by_id("ABC")) == ["abc", "abcd", "zzabc", "xabc"]
    assert sent() == 1
    blank: Any
    for blank in ("", "  ", None, "a\x00", "\ud800", "x" * 60_000):
        assert await db.search_sessions_by_id(blank) == []
    for limit in (0, -1):
        assert await db.search_sessions_by_id("a", limit=limit) == []
    assert len(await db.search_sessions_by_id("a", limit=None)) == 4
    for at in range(6):
        await story.new(f"xabc{at}", 10 + at)
    assert ids(await db.search_sessions_by_id("abc", limit=1)) == ["abc"], "ranked before the limit"
    assert ids(await db.search_sessions_by_id("abc", limit=3)) == ["abc", "abcd", "xabc5"]


async def test_ids_are_searched_among_listed_conversations(db: SessionDB, story: Story) -> None:
    await story.new("abc", 1)
    await story.new("abcd", 2)
    await story.new("xabc", 3, source="telegram")
    await story.new("abc_hidden", 4, hidden=1)
    await story.new("abc_arch", 5, archived=1)
    await story.new("abckid", 6, parent="abc", config={"_delegate_from": "abc"})
    await story.new("root1", 7)
    await story.end("root1", "compression", 8)
    await story.new("tip2", 8, parent="root1")
    await story.new("a%b", 9)
    await story.new("ABCUP", 10, source="cron")

    async def found(query: str, **arguments: Any) -> list[str]:
        return ids(await db.search_sessions_by_id(query, **arguments))

    for query in ("abc", "ABC", " abc "):
        assert await found(query) == ["abc", "ABCUP", "abc_arch", "abcd", "xabc"]
    assert await found("abc", limit=2) == ["abc", "ABCUP"]
    assert await found("abc", include_archived=False) == ["abc", "ABCUP", "abcd", "xabc"]
    assert await found("abc", source="telegram") == ["xabc"]
    assert await found("abc", source="\x00") == []
    assert await found("abc", sources=["telegram", "cron"]) == ["ABCUP", "xabc"]
    assert await found("abc", exclude_sources=["cli"]) == ["ABCUP", "xabc"]
    assert (await found("%"), await found("_")) == (["a%b"], ["abc_arch"])
    assert (await found("kid"), await found("abc_hidden")) == ([], [])
    for query in ("root1", "root", "tip2"):
        (row,) = await db.search_sessions_by_id(query)
        assert (row["id"], row["_lineage_root_id"]) == ("tip2", "root1")
    (row,) = await db.search_sessions_by_id("root1")
    assert [row] == await db.list_sessions_rich(id_query="root1")


async def test_every_id_of_a_conversation_ranks_it_and_all_its_sessions_make_it_active(
    db: SessionDB, story: Story
) -> None:
    await story.chain()
    await story.new("mid-2", 8)
    await story.new("amid", 9)
    await story.new("amids", 7)
    assert ids(await db.search_sessions_by_id("mid")) == ["tip", "mid-2", "amid", "amids"]
    await story.end("amids", "compression", 7)
    await story.new("x", 7, parent="amids")
    await story.msg("x", "late", 99)
    await story.new("fork", 7, parent="amids", config={"_branched_from": "amids"})
    await story.msg("fork", "later", 100)
    assert ids(await db.search_sessions_by_id("mid")) == ["tip", "mid-2", "x", "amid"]
    await story.raw.execute(
        "UPDATE sessions SET parent_session_id = 'tip', end_reason = 'compression' "
        "WHERE id IN ('root', 'tip')"
    )
    assert ids(await db.search_sessions_by_id("mid")) == ["mid-2", "x", "amid"], (
        "a ring has no root"
    )


async def test_first_text_of_the_assistant(db: SessionDB, story: Story, sent: Sent) -> None:
    for name in "abcde":
        await db.create_session(name, "cli")
    for content, at in ((None, 1), ("second", 20), ("first", 10), ("third", 10)):
        await db.append_message("a", "assistant", content, timestamp=at)
    await db.append_message("a", "user", "earlier", timestamp=2)
    await db.append_message("b", "assistant", [{"type": "text", "text": "x"}], timestamp=1)
    await db.append_message("b", "assistant", "later", timestamp=2)
    await db.append_message("c", "assistant", "", timestamp=1, tool_calls=[{"id": "1"}])
    await db.append_message("c", "assistant", "answer", timestamp=2)
    await db.append_message("d", "assistant", "with \x00", timestamp=1)
    await db.append_message("e", "assistant", "undone", timestamp=1)
    await story.raw.execute("UPDATE messages SET active = 0 WHERE session_id = 'e'")
    sent()
    texts = [await db.get_first_assistant_text(name) for name in "abcde"]
    assert texts == ["first", "", "answer", "with \x00", "undone"]
    assert sent() == 5
    missing: Any
    for missing in NEVER:
        assert await db.get_first_assistant_text(missing) == ""


async def test_sessions_that_begin_with_a_skill(db: SessionDB, story: Story, sent: Sent) -> None:
    scaffold = f'{P}"work" skill.'
    for at, name in enumerate("abcdefghi"):
        await story.new(name, at, title=name.upper() if name != "c" else None)
    for name, *texts in (
        ("a", scaffold, "later"),
        ("b", "hello", scaffold),
        ("c", scaffold),
        ("d", None, scaffold),
        ("e", scaffold.lower()),
        ("f", "undone", scaffold),
        ("g", [{"type": "text", "text": scaffold}]),
        ("h", f"{scaffold} \x00"),
    ):
        for at, content in enumerate(texts):
            await db.append_message(name, "user", content, timestamp=at)
    await db.append_message("i", "assistant", scaffold)
    await story.raw.execute("UPDATE messages SET active = 0 WHERE content = 'undone'")
    await story.raw.execute("UPDATE sessions SET archived = 1, hidden = 1 WHERE id = 'd'")
    await story.raw.execute("UPDATE sessions SET parent_session_id = 'b' WHERE id = 'a'")
    sent()
    found = await db.list_skill_scaffolded_sessions()
    assert sent() == 1
    assert found == [
        {"id": "h", "title": "H", "content": f"{scaffold} \x00"},
        {"id": "f", "title": "F", "content": scaffold},
        {"id": "d", "title": "D", "content": scaffold},
        {"id": "a", "title": "A", "content": scaffold},
    ]
    limit: Any
    for limit, expected in ((2, "hf"), ("1", "h"), (0, ""), (-1, "hfda"), (None, "hfda")):
        found = await db.list_skill_scaffolded_sessions(limit)
        assert "".join(ids(found)) == expected, limit
