"""Private Telegram chats that are split into topics: gateway 7."""

import asyncio
import sqlite3
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy.exc import IntegrityError

from tests.conftest import Clock
from tests.contract.stories import Story, ids
from tests.raw import Raw

CHAT = {"chat_id": 1, "user_id": "u"}
TABLES = "SELECT count(*) FROM sqlite_schema WHERE name LIKE 'telegram%'"


def topic(thread_id: Any = 7, session_id: str = "s", **other: Any) -> dict[str, Any]:
    return {
        **CHAT,
        "thread_id": thread_id,
        "session_key": f"agent:main:telegram:dm:1:{thread_id}",
        "session_id": session_id,
        **other,
    }


async def is_on(db: Any, **chat: Any) -> bool:
    found: bool = await db.is_telegram_topic_mode_enabled(**{**CHAT, **chat})
    return found


async def linked(db: Any, thread_id: Any = 7, **chat: Any) -> Any:
    found = await db.get_telegram_topic_binding(chat_id="1", thread_id=thread_id, **chat)
    return found and found["session_id"]


async def test_nothing_is_created_by_reading(
    db: Any, raw: Raw, story: Story
) -> None:  # gateway 11.26
    await story.new("own", 1, source="telegram", user_id="u")
    await story.new("foreign", 2, source="telegram", user_id="u", profile_name="bot")
    assert await is_on(db) is False
    assert await linked(db) is None
    assert await db.list_telegram_topic_bindings_for_chat(chat_id=1) == []
    assert await db.get_telegram_topic_binding_by_session(session_id="own") is None
    assert await db.is_telegram_session_linked_to_topic(session_id="own") is False
    assert await db.delete_telegram_topic_binding(chat_id=1, thread_id=7) == 0
    assert await db.disable_telegram_topic_mode(chat_id=1) is None
    assert ids(await db.list_unlinked_telegram_sessions_for_user(**CHAT)) == ["own"]  # G-17
    assert await db.get_meta("telegram_dm_topic_schema_version") is None
    if not raw.is_postgres:
        assert await raw.fetch(TABLES) == [(0,)]
    await db.apply_telegram_topic_migration()
    await db.apply_telegram_topic_migration()
    assert await db.get_meta("telegram_dm_topic_schema_version") == "3"
    assert ids(await db.list_unlinked_telegram_sessions_for_user(**CHAT)) == ["own"]
    assert ids(await db.list_unlinked_telegram_sessions_for_user(**CHAT, profile_name=" bot ")) == [
        "foreign"
    ]


async def test_a_session_has_one_topic(
    db: Any, story: Story, clock: Clock
) -> None:  # gateway 11.27
    await story.new("s")
    await story.new("s2")
    began = clock.time
    await db.bind_telegram_topic(**topic(7))
    assert await is_on(db) is False
    clock.advance(10)
    await db.bind_telegram_topic(**topic(7))
    for other in (topic(8), topic(7, profile_name="bot"), topic(7, chat_id="2")):
        with pytest.raises(ValueError, match="already linked to another Telegram topic"):
            await db.bind_telegram_topic(**other)
    with pytest.raises((sqlite3.IntegrityError, IntegrityError)):
        await db.bind_telegram_topic(**topic(9, "nobody"))
    await db.bind_telegram_topic(**topic(7, "s2", managed_mode="manual", user_id="v"))
    assert await db.get_telegram_topic_binding(chat_id="1", thread_id="7") == {
        "profile_name": "default",
        "chat_id": "1",
        "thread_id": "7",
        "user_id": "v",
        "session_key": "agent:main:telegram:dm:1:7",
        "session_id": "s2",
        "managed_mode": "manual",
        "linked_at": began,
        "updated_at": began + 10,
    }
    assert await db.is_telegram_session_linked_to_topic(session_id="s") is False
    clock.advance(10)
    await db.bind_telegram_topic(**topic(8, "s", profile_name=" "))
    listed = await db.list_telegram_topic_bindings_for_chat(chat_id=1)
    assert [row["thread_id"] for row in listed] == ["8", "7"]
    assert await db.get_telegram_topic_binding_by_session(session_id="s") == listed[0]


async def test_topics_are_on_until_the_last_binding_goes(
    db: Any, raw: Raw, story: Story, clock: Clock
) -> None:  # gateway 11.28
    for session_id in "st":
        await story.new(session_id)
    await db.enable_telegram_topic_mode(
        **CHAT, has_topics_enabled=True, allows_users_to_create_topics=False
    )
    activated = clock.time
    mode = (
        "SELECT user_id, enabled, activated_at, updated_at, has_topics_enabled, "
        "allows_users_to_create_topics, capability_checked_at FROM telegram_dm_topic_mode"
    )
    assert await raw.fetch(mode) == [("u", 1, activated, activated, 1, 0, activated)]
    assert await is_on(db, chat_id="1") is True
    assert await is_on(db, user_id="v") is await is_on(db, profile_name="bot") is False
    clock.advance(5)
    await db.enable_telegram_topic_mode(**CHAT)
    later = clock.time
    assert await raw.fetch(mode) == [("u", 1, activated, later, None, None, later)]
    for thread_id, session_id in [(7, "s"), (8, "t")]:
        await db.bind_telegram_topic(**topic(thread_id, session_id))
    assert await db.delete_telegram_topic_binding(chat_id=1, thread_id=7) == 1
    assert await is_on(db) is True
    assert await db.delete_telegram_topic_binding(chat_id=1, thread_id=8) == 1
    assert await is_on(db) is False
    assert await db.delete_telegram_topic_binding(chat_id=1, thread_id=8) == 0
    await db.enable_telegram_topic_mode(**CHAT)
    await db.bind_telegram_topic(**topic(7, "s"))
    await db.delete_session("s")
    assert await linked(db) is None
    assert await is_on(db) is True
    await db.bind_telegram_topic(**topic(8, "t"))
    await db.disable_telegram_topic_mode(chat_id=1, clear_bindings=False)
    assert (await is_on(db), await linked(db, 8)) == (False, "t")
    await db.disable_telegram_topic_mode(chat_id=1)
    assert await linked(db, 8) is None


async def test_unlinked_sessions(db: Any, story: Story) -> None:
    kinds: list[dict[str, Any]] = [
        {},
        {"archived": 1},
        {"hidden": 1},
        {"profile_name": "default"},
        {"profile_name": ""},
    ]
    for number, columns in enumerate(kinds):
        await story.new(f"s{number}", number, source="telegram", user_id="u", **columns)
    await story.new("other user", source="telegram", user_id="v")
    await story.new("other place", source="cli", user_id="u")
    await story.msg("s1", "the latest", 99)
    await db.bind_telegram_topic(**topic(7, "s3"))
    rows = await db.list_unlinked_telegram_sessions_for_user(**CHAT)
    assert ids(rows) == ["s1", "s4", "s2", "s0"]
    assert rows[0] == await db.get_session_rich_row("s1")
    limited = await db.list_unlinked_telegram_sessions_for_user(**CHAT, limit=1)
    assert ids(limited) == ["s1"]


async def test_races_for_a_session_and_for_the_last_topic(
    db: Any, open_store: Callable[..., Any], story: Story
) -> None:
    other = open_store()
    for number in range(4):
        await story.new(f"s{number}")
        results = await asyncio.gather(
            db.bind_telegram_topic(**topic(1, f"s{number}", chat_id=number)),
            other.bind_telegram_topic(**topic(2, f"s{number}", chat_id=number)),
            return_exceptions=True,
        )
        assert [type(result) for result in results if result is not None] == [ValueError]
        await story.new(f"t{number}")
        await db.enable_telegram_topic_mode(chat_id=number, user_id="u")
        thread_id = 2 if results[0] is None else 1
        await db.bind_telegram_topic(**topic(thread_id, f"t{number}", chat_id=number))
        deleted = await asyncio.gather(
            db.delete_telegram_topic_binding(chat_id=number, thread_id=1),
            other.delete_telegram_topic_binding(chat_id=number, thread_id=2),
        )
        assert list(deleted) == [1, 1]
        assert await is_on(db, chat_id=number) is False
