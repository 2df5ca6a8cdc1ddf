"""Queries as people and models type them: whatever stands in a text is found as it is written."""

from collections.abc import Callable

import pytest

from hermes_orm import SessionDB
from tests.contract.finding import found, found_set

WRITTEN = (
    "fix #123 in src/main.py don't 50% alice@example.com ok? $5 a,b key=value [x] a|b ~z 'code'"
)
NAMES = (
    r"user@example.com https://example.com/a?b=c v2.1.3-beta C:\dir\file foo::bar C++ .env -v "
    "__init__"
)
UNBALANCED = [
    *('"docker', 'docker"', "(docker", "docker)", "^docker", "{docker}: x"),
    *("docker;drop table messages", "[docker", "docker]", "docker \\", "`docker"),
]


async def test_every_word_of_a_text_is_found_as_it_is_written(db: SessionDB) -> None:
    await db.create_session("s", "cli")
    for text in (WRITTEN, NAMES, "wrong-book mistakes"):
        await db.append_message("s", "user", text)
    for row_id, text in enumerate((WRITTEN, NAMES), 1):
        for word in text.split():
            assert row_id in await found(db, word), word
    assert await found(db, "wrong-book OR mistakes") == [3]
    assert await found(db, "wrong-book") == [3]


async def test_unbalanced_signs_hide_no_word(db: SessionDB) -> None:
    await db.create_session("s", "cli")
    await db.append_message("s", "user", "docker x drop table messages")
    for query in UNBALANCED:
        assert await found(db, query) == [1], query
    for query in ("()", "*", '"', "^", "[]", "::"):
        assert await found(db, query) == [], query


async def test_several_words_mean_all_of_them(db: SessionDB) -> None:
    await db.create_session("s", "cli")
    for text in ("alpha only", "alpha beta"):
        await db.append_message("s", "user", text)
    assert await found(db, "alpha beta") == [2]
    assert await found_set(db, "alpha OR beta") == [1, 2]


async def test_short_cjk_words_and_words_beside_cjk_are_found(db: SessionDB) -> None:
    await db.create_session("s", "cli")
    for text in ("我们去广西桂林旅游", "修改youer服务端的计划"):
        await db.append_message("s", "user", text)
    for query in ("广西 OR 桂林 OR 漓江", "广西 AND 桂林", "桂"):
        assert await found(db, query) == [1], query
    for query in ("youer", "youer 服务端 修改"):
        assert await found(db, query) == [2], query


async def test_filters_apply_before_the_page_is_cut(db: SessionDB) -> None:
    for session_id in ("a", "b"):
        await db.create_session(session_id, "cli")
    await db.append_messages_batch("a", [{"role": "user", "content": "tie"}] * 25)
    await db.append_message("b", "user", "tie")
    pages = [await found(db, "tie", limit=4, offset=start) for start in range(0, 28, 4)]
    assert [row_id for page in pages for row_id in page] == list(range(1, 27))
    await db.append_messages_batch("a", [{"role": "tool", "content": "needle"}] * 30)
    await db.append_message("a", "user", "needle")
    assert await found(db, "needle", role_filter=["user"], limit=5) == [57]


async def test_pictures_are_not_searched(db: SessionDB) -> None:
    await db.create_session("s", "cli")
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "QUJD" * 9_000}}
    await db.append_message("s", "user", [picture, {"type": "text", "text": "what is this"}])
    for query, ids in (("image_url", []), ("QUJDQUJD", []), ("what is this", [1])):
        assert await found(db, query) == ids


async def test_archived_sessions_and_read_only_stores_find_the_same(
    db: SessionDB, open_store: Callable[..., SessionDB]
) -> None:
    await db.create_session("a", "cli")  # field reports D3, D5
    await db.append_message("a", "user", "needle 广西桂林")
    await db.set_session_archived("a", True)
    reader = open_store(read_only=True)
    for query in ("needle", "广西", "eedl", "桂"):
        assert await found(db, query) == await found(reader, query) == [1]
    assert await db.list_sessions_rich() == []
    with pytest.raises(PermissionError):
        await reader.append_message("a", "user", "more")
