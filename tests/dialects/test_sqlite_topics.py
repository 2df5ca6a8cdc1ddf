"""Telegram topics in a SQLite file in which another program made the tables, before profiles."""

import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from hermes_orm import SessionDB
from tests.contract.stories import Story
from tests.raw import Raw

OLD_TABLES = (
    "CREATE TABLE telegram_dm_topic_mode (chat_id TEXT PRIMARY KEY, user_id TEXT NOT NULL, "
    "enabled INTEGER NOT NULL DEFAULT 1, activated_at REAL NOT NULL, updated_at REAL NOT NULL, "
    "has_topics_enabled INTEGER, allows_users_to_create_topics INTEGER, "
    "capability_checked_at REAL, intro_message_id TEXT, pinned_message_id TEXT)",
    "CREATE TABLE telegram_dm_topic_bindings (chat_id TEXT NOT NULL, thread_id TEXT NOT NULL, "
    "user_id TEXT NOT NULL, session_key TEXT NOT NULL, session_id TEXT NOT NULL "
    "REFERENCES sessions(id), managed_mode TEXT NOT NULL DEFAULT 'auto', linked_at REAL NOT NULL, "
    "updated_at REAL NOT NULL, PRIMARY KEY (chat_id, thread_id))",
    "CREATE UNIQUE INDEX old_session ON telegram_dm_topic_bindings (session_id)",
    "CREATE TABLE telegram_dm_topic_mode_new (leftover TEXT)",
    "INSERT INTO telegram_dm_topic_mode VALUES ('1', 'u', 1, 5, 6, 1, NULL, 7, '11', '12')",
    "INSERT INTO telegram_dm_topic_bindings VALUES ('1', '7', 'u', 'k', 's', 'auto', 5, 6)",
    "INSERT INTO telegram_dm_topic_bindings VALUES ('1', '8', 'u', 'k', 'gone', 'auto', 5, 6)",
)


@pytest.fixture
def path(make_location: Callable[..., str]) -> str:
    return make_location("sqlite")


@pytest.fixture
def raw(path: str) -> Raw:
    return Raw(path)


@pytest.fixture
async def db(path: str, raw: Raw) -> AsyncIterator[Any]:
    await Story(raw).new("s")
    for statement in OLD_TABLES:
        await raw.execute(statement)
    async with SessionDB(path) as db:
        yield db


async def is_on(db: Any) -> Any:
    return await db.is_telegram_topic_mode_enabled(chat_id=1, user_id="u")


async def linked(db: Any) -> Any:
    found = await db.get_telegram_topic_binding(chat_id=1, thread_id=7)
    return found and found["session_id"]


async def test_reading_migrates(db: Any, raw: Raw) -> None:
    assert await is_on(db) is True
    rows = await db.list_telegram_topic_bindings_for_chat(chat_id=1)
    assert [(row["profile_name"], row["session_id"]) for row in rows] == [("default", "s")]
    assert rows[0]["linked_at"] == 5.0
    mode = "SELECT profile_name, intro_message_id, pinned_message_id FROM "
    assert await raw.fetch(mode + "telegram_dm_topic_mode") == [("default", "11", "12")]
    assert await db.get_meta("telegram_dm_topic_schema_version") == "3"
    assert await db.delete_session("s") is True
    assert await linked(db) is None


async def test_changes_migrate_first(db: Any) -> None:  # G-16
    await db.disable_telegram_topic_mode(chat_id=1)
    assert await is_on(db) is False
    assert await linked(db) is None


async def test_deleting_migrates_first(db: Any) -> None:
    assert await db.delete_telegram_topic_binding(chat_id=1, thread_id=7) == 1
    assert await is_on(db) is False


async def test_read_only_stores_and_failures_read_nothing(
    db: Any, path: str, raw: Raw, caplog: pytest.LogCaptureFixture
) -> None:
    async with SessionDB(path, read_only=True) as reader:
        assert await is_on(reader) is False
    await raw.execute("DROP INDEX old_session")
    await raw.execute(
        "INSERT INTO telegram_dm_topic_bindings VALUES ('1', '9', 'u', 'k', 's', 'auto', 5, 6)"
    )
    with caplog.at_level(logging.WARNING):
        assert await linked(db) is None
    assert "not migrated" in caplog.text


async def test_reading_within_a_transaction(db: Any) -> None:
    async with db.transaction() as unit:
        assert await is_on(unit) is True
    assert await is_on(db) is True
