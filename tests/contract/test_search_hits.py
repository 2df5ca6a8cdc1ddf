"""What a hit shows, in which order hits come, and which rows are none."""

import json
from typing import Any

import pytest

from hermes_orm import SessionDB
from tests.contract.finding import found, found_set, tell_corpus
from tests.raw import Raw


def shown(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


async def test_context_is_the_message_between_its_neighbours(db: SessionDB, raw: Raw) -> None:
    await tell_corpus(db, raw)
    (zebra,) = await db.search_messages("zebra")
    assert zebra["context"] == [
        shown("user", "🚀 launch the rocket 🎉 party"),
        shown("assistant", "compacted message mentioning zebra"),
        shown("user", "HELLO World hello WORLD"),
    ]
    (giraffe,) = await db.search_messages("giraffe")
    assert giraffe["context"] == [
        shown("user", "concatenate the cat pictures; category list"),
        shown("user", "picture of a giraffe"),
        shown("assistant", "100% coverage reached, 達成100%完成率"),
    ]
    (first,) = await db.search_messages('"docker image"')
    assert [entry["role"] for entry in first["context"]] == ["user", "assistant"]
    (only,) = await db.search_messages("secrets")
    assert only["context"] == [shown("user", "hidden session about docker secrets")]


async def test_context_follows_time_and_shows_the_beginning_of_texts(db: SessionDB) -> None:
    await db.create_session("s", "cli")
    told: list[tuple[Any, float]] = [
        ("needle " + "n" * 300, 20.0),
        ("late", 30.0),
        ([{"type": "image_url", "image_url": {"url": "data:,"}}], 10.0),
        (None, 21.0),
    ]
    for content, timestamp in told:
        await db.append_message("s", "user", content, timestamp=timestamp)
    (hit,) = await db.search_messages("needle")
    assert hit["context"] == [
        shown("user", "[multimodal content]"),
        shown("user", "needle " + "n" * 193),
        shown("user", ""),
    ]


async def test_values_are_those_of_the_message_and_of_its_session(db: SessionDB, raw: Raw) -> None:
    await tell_corpus(db, raw)
    (hit,) = await db.search_messages("read_file")
    context = hit.pop("context")  # type: ignore[misc]
    assert [entry["role"] for entry in context] == ["assistant", "tool", "user"]
    assert hit == {
        "id": 26,
        "session_id": "s2",
        "role": "tool",
        "snippet": ">>>read_file<<<",
        "timestamp": 1260.0,
        "tool_name": "read_file",
        "source": "telegram",
        "model": "model-s2",
        "session_started": 902.0,
    }


async def test_snippets_show_why_a_message_was_found(db: SessionDB, raw: Raw) -> None:
    await tell_corpus(db, raw)
    for query, row_id, snippet in [
        ("docker", 18, "subagent found >>>docker<<< socket at /var/run/>>>docker<<<.sock"),
        (
            "docker deployment",
            2,
            "Run >>>docker<<<-compose up -d and check >>>deployment<<<.yaml first.",
        ),
        ('"hello world"', 28, ">>>HELLO World<<< >>>hello WORLD<<<"),
        (
            "snake case",
            6,
            "Email user@example.com about P2.2 and the >>>snake<<<_>>>case<<<_name variable",
        ),
        ("terminal", 4, ">>>terminal<<<"),
        ("giraffe", 24, "picture of a >>>giraffe<<<"),
        ("数据库连接", 11, "错误日志：>>>数据库连接<<<超时"),
        ("连接", 11, "错误日志：数据库>>>连接<<<超时"),
        ("catenate", 23, "con>>>catenate<<< the cat pictures; category list"),
    ]:
        snippets = {hit["id"]: hit["snippet"] for hit in await db.search_messages(query)}
        assert snippets[row_id] == snippet
    (calls,) = await db.search_messages("kubectl")
    assert ">>>kubectl<<< get pods" in calls["snippet"]
    assert json.loads(calls["snippet"].replace(">>>", "").replace("<<<", ""))


async def test_tool_calls_are_found_by_words_only(db: SessionDB, raw: Raw) -> None:
    await tell_corpus(db, raw)
    assert await found(db, "kubectl") == [3]
    assert await found(db, "ubectl") == []


async def test_text_inside_structured_content_and_tool_calls_is_found(db: SessionDB) -> None:
    await db.create_session("s", "cli")
    parts = [{"type": "text", "text": "多模态数据库"}, {"type": "text", "text": "ação Ünïcode"}]
    await db.append_message("s", "user", parts)
    calls = [{"function": {"name": "f", "arguments": '{"q": "implantação"}'}}]
    await db.append_message("s", "assistant", "", tool_calls=calls)
    assert [hit["snippet"] for hit in await db.search_messages("数据")] == [
        "多模态>>>数据<<<库 ação Ünïcode"
    ]
    assert await found(db, "acao unicode") == [1]
    assert await found(db, "implantacao") == [2]
    assert await found(db, "text") == []


async def test_beginnings_of_long_messages_are_searched(db: SessionDB) -> None:
    await db.create_session("s", "cli")
    filler = "数据 " * 21_840
    await db.append_message("s", "user", f"{filler}early 部署 late{'x' * 99} beyond 日志")
    await db.append_message("s", "tool", f"{'y ' * 4_092}inside outside 部署", tool_name="reader")
    for query, ids in [
        *(("early", [1]), ("beyond", []), ("inside", [2]), ("outside", []), ("reader", [2])),
        *(("部署", [1]), ("日志", []), ("eyon", []), ("earl", [1])),
    ]:
        assert await found(db, query) == ids, query
    assert await found_set(db, "日志", role_filter=["user", "tool"]) == [1]
    (hit,) = await db.search_messages("部署", role_filter=["tool"])
    assert hit["snippet"].endswith("y inside outside >>>部署<<<")


async def test_ties_come_in_the_order_of_ids(db: SessionDB) -> None:
    await db.create_session("s", "cli")
    same = [{"role": "user", "content": "needle 部署", "timestamp": 5.0}] * 60
    await db.append_messages_batch("s", same)
    ids = list(range(1, 61))
    assert await found(db, "needle", limit=None) == ids
    assert await found(db, "needle", limit=7, offset=31) == ids[31:38]
    for query in ("needle", "部署", "eedl"):
        assert await found(db, query, limit=None, sort="oldest") == ids
        assert await found(db, query, limit=None, sort="newest") == ids[::-1]
    assert await found(db, "部署", limit=None) == ids[::-1]


async def test_a_message_with_more_of_the_words_is_more_relevant(db: SessionDB) -> None:
    await db.create_session("s", "cli")
    for text in ("alpha one two", "beta one two", "alpha beta two", "none one two"):
        await db.append_message("s", "user", text)
    assert (await found(db, "alpha OR beta"))[0] == 3


async def test_pages_do_not_mix_words_and_substrings(db: SessionDB) -> None:
    await db.create_session("s", "cli")
    for text in ("cat", "concatenate one", "concatenate two", "concatenate three", "the cat"):
        await db.append_message("s", "user", text)
    assert await found(db, "cat") == [1, 5]
    assert await found(db, "cat", limit=2, offset=2) == []
    assert await found(db, "cat", offset=1) == [5]
    assert await found(db, "catenate", limit=2, offset=1) == [3, 2]


async def test_messages_that_no_display_shows_are_no_hits(db: SessionDB) -> None:
    await db.create_session("s", "cli")
    await db.append_message("s", "user", "needle", display_kind="hidden")
    await db.append_message("s", "user", "needle", display_kind="event")
    assert await found(db, "needle") == [2]
    assert await found(db, "eedl", include_inactive=True) == [2]


ARCHIVED = "UPDATE messages SET active = 0, compacted = 1 WHERE id <= ?"
COMPRESSED = "UPDATE sessions SET end_reason = 'compression', ended_at = 9 WHERE id = ?"


@pytest.mark.parametrize("live", ["root", "tip"])
async def test_what_compaction_kept_is_found_once(db: SessionDB, raw: Raw, live: str) -> None:
    """Six messages, compacted twice with copies of the last two; in place or into a new session."""
    await db.create_session("root", "cli")
    await db.create_session("tip", "cli", parent_session_id="root")
    for session_id, numbers in (("root", range(1, 7)), ("root", (5, 6)), (live, (5, 6))):
        for number in numbers:
            await db.append_message(session_id, "user", f"needle row {number}", timestamp=number)
    await raw.execute(ARCHIVED, 8)
    await raw.execute(COMPRESSED, "root")
    everything = [1, 2, 3, 4, 9, 10]
    for query in ("needle", "eedl"):
        assert await found_set(db, query) == everything
        assert await found(db, query, sort="newest") == everything[::-1]
        for offset in range(8):
            page = await found(db, query, sort="oldest", limit=3, offset=offset)
            assert page == everything[offset : offset + 3]
        assert await found_set(db, query, include_inactive=True) == list(range(1, 11))
    assert await found(db, '"row 6"') == [10]


async def test_a_message_that_was_edited_repeats_its_archived_row(db: SessionDB, raw: Raw) -> None:
    await db.create_session("s", "cli")
    for text in ("needle before", "needle after"):
        await db.append_message("s", "user", text)
    await raw.execute(ARCHIVED, 1)
    assert await found_set(db, "needle") == [1, 2]
    await raw.execute("UPDATE messages SET message_uid = 'same'")
    assert await found_set(db, "needle") == [2]
    assert await found_set(db, "before") == []


async def test_a_branch_repeats_nothing(db: SessionDB, raw: Raw) -> None:
    await db.create_session("root", "cli")
    await db.create_session(
        "branch", "cli", parent_session_id="root", model_config={"_branched_from": "root"}
    )
    for session_id in ("root", "branch"):
        await db.append_message(session_id, "user", "needle", timestamp=1.0)
    await raw.execute(ARCHIVED, 1)
    await raw.execute(COMPRESSED, "root")
    assert await found_set(db, "needle") == [1, 2]
