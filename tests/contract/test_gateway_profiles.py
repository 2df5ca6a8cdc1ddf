"""Profiles get other names, go, and get what belongs to them: gateway 10."""

import json
from typing import Any

import pytest

from tests.conftest import Clock
from tests.contract.stories import Story, ids
from tests.raw import Raw

CORE = {
    "sessions_profile_name": 0,
    "gateway_heartbeats_profile": 0,
    "sessions_session_key": 0,
    "sessions_origin_json": 0,
    "gateway_routing": 0,
}


async def column(raw: Raw, query: str) -> list[Any]:
    return [row[0] for row in await raw.fetch(query)]


async def fill(db: Any, story: Story) -> None:
    """What a profile `old` has, beside a profile `older` that is none of it."""
    origin = json.dumps({"profile": "old", "name": "ünï"})
    await story.new(
        "a",
        1,
        session_key="agent:old:telegram:dm:1",
        profile_name="old",
        transport_profile="old",
        origin_json=origin,
    )
    await story.new("b", 2, session_key="agent:older:x:1", profile_name="older", origin_json="{old")
    await story.new("c", 3, origin_json='{"profile":"other","was":"old"}')
    entry = {
        "session_key": "agent:old:telegram:dm:1",
        "origin": {"profile": "old", "chat": "ü"},
        "n": 1,
    }
    await db.save_gateway_routing_entry("agent:old:telegram:dm:1", json.dumps(entry), scope="A")
    await db.save_gateway_routing_entry("agent:old:telegram:dm:2", "{bad", scope="A")
    await db.save_gateway_routing_entry("agent:older:x", '{"session_key": "agent:older:x"}')
    await db.register_backend_heartbeat(backend_id="h", pid=1, started_at=1, profile="old")
    await db.increment_hygiene_failure_streak("agent:old:telegram:dm:1")
    await story.new("g", 4, session_key="agent:old:k", source="telegram")
    await db.end_session("g", "idle")


async def test_a_profile_gets_another_name(
    db: Any, raw: Raw, story: Story, clock: Clock
) -> None:  # gateway 11.32
    await fill(db, story)
    for names in [("", "new"), ("old", " "), (" old", "old "), (None, "new")]:
        assert await db.rekey_profile_state(*names) == {}
    counts = await db.rekey_profile_state(" old ", "new")
    assert {name: counts[name] for name in CORE} == {
        "sessions_profile_name": 1,
        "gateway_heartbeats_profile": 1,
        "sessions_session_key": 2,
        "sessions_origin_json": 1,
        "gateway_routing": 2,
    }
    assert (counts.keys() == CORE.keys()) is not raw.is_postgres
    a = await db.get_session("a")
    assert (a["session_key"], a["profile_name"]) == ("agent:new:telegram:dm:1", "new")
    assert a["origin_json"] == '{"profile": "new", "name": "ünï"}'
    assert await column(raw, "SELECT transport_profile FROM sessions WHERE id = 'a'") == ["new"]
    assert (await db.get_session("b"))["session_key"] == "agent:older:x:1"
    assert (await db.get_session("b"))["origin_json"] == "{old"
    assert (await db.get_session("c"))["origin_json"] == '{"profile":"other","was":"old"}'
    rows = {row["session_key"]: row for row in await db.list_gateway_routing_rows()}
    assert rows.keys() == {
        "agent:new:telegram:dm:1",
        "agent:new:telegram:dm:2",
        "agent:older:x",
    }
    assert rows["agent:new:telegram:dm:1"]["entry_json"] == (
        '{"session_key": "agent:new:telegram:dm:1", '
        '"origin": {"profile": "new", "chat": "ü"}, "n": 1}'
    )
    assert rows["agent:new:telegram:dm:2"]["entry_json"] == "{bad"
    assert rows["agent:new:telegram:dm:1"]["updated_at"] == clock.time
    # G-22
    assert await db.increment_hygiene_failure_streak("agent:new:telegram:dm:1") == 2
    assert await db.increment_hygiene_failure_streak("agent:old:telegram:dm:1") == 1
    for key in ("agent:new:k", "agent:old:k"):
        assert await db.latest_conversation_boundary(key, "telegram") == 1
    assert await db.rekey_profile_state("old", "new") == counts.fromkeys(counts, 0)


async def test_namespaces_of_default_and_main(db: Any, raw: Raw, story: Story) -> None:  # G-21
    await story.new("a", session_key="agent:main:x:1", profile_name="default")
    await db.rekey_profile_state("default", "work")
    assert (await db.get_session("a"))["session_key"] == "agent:work:x:1"
    await db.rekey_profile_state("work", "main")
    assert (await db.get_session("a"))["session_key"] == "agent:main~:x:1"
    await db.rekey_profile_state("main", "default")
    assert (await db.get_session("a"))["session_key"] == "agent:main:x:1"


async def test_collisions_change_nothing(db: Any, raw: Raw, story: Story) -> None:
    await fill(db, story)
    await db.save_gateway_routing_entry("agent:new:telegram:dm:1", "{}", scope="B")
    await db.save_gateway_routing_entry("agent:new:telegram:dm:2", "{}", scope="A")
    with pytest.raises(ValueError, match=r"profile routing collision.*agent:new:telegram:dm:2"):
        await db.rekey_profile_state("old", "new")
    await db.enable_telegram_topic_mode(chat_id=1, user_id="u", profile_name="third")
    with pytest.raises(ValueError, match=r"profile identity collision.*third"):
        await db.rekey_profile_state("old", "third")
    assert (await db.get_session("a"))["session_key"] == "agent:old:telegram:dm:1"
    assert (await db.get_session("a"))["profile_name"] == "old"


async def test_topics_and_larger_counters_follow(db: Any, raw: Raw, story: Story) -> None:
    await fill(db, story)
    await db.enable_telegram_topic_mode(chat_id=1, user_id="u", profile_name="old")
    await db.bind_telegram_topic(
        chat_id=1,
        thread_id=7,
        user_id="u",
        session_key="agent:old:t",
        session_id="a",
        profile_name="old",
    )
    for generation, key in [(5, "agent:new:k"), (2, "agent:new:l"), (3, "agent:old:l")]:
        row = {"source": "telegram", "session_key": key, "generation": generation}
        await story.insert("conversation_generations", row)
    counts = await db.rekey_profile_state("old", "new")
    assert {name: n for name, n in counts.items() if name.startswith("telegram")} == {
        "telegram_dm_topic_mode_profile_name": 1,
        "telegram_dm_topic_bindings_profile_name": 1,
        "telegram_dm_topic_bindings_session_key": 1,
    }
    binding = await db.get_telegram_topic_binding_by_session(session_id="a")
    assert (binding["profile_name"], binding["session_key"]) == ("new", "agent:new:t")
    for key, generation in [("agent:new:k", 5), ("agent:new:l", 3), ("agent:old:l", 3)]:
        assert await db.latest_conversation_boundary(key, "telegram") == generation


async def test_a_profile_goes(db: Any, raw: Raw, story: Story) -> None:
    await fill(db, story)
    assert await db.purge_profile_state(" ") == {}
    await db.enable_telegram_topic_mode(chat_id=1, user_id="u", profile_name="old")
    counts = await db.purge_profile_state("old")
    assert counts.pop("delivery_obligations", 0) == 0
    assert counts == {
        "gateway_routing": 2,
        "gateway_heartbeats": 1,
        "telegram_dm_topic_mode": 1,
        "telegram_dm_topic_bindings": 0,
    }
    again = await db.purge_profile_state("old")
    assert set(again.values()) == {0}
    keys = [row["session_key"] for row in await db.list_gateway_routing_rows()]
    assert keys == ["agent:older:x"]
    assert (await db.get_session("a"))["profile_name"] == "old"
    assert await db.latest_conversation_boundary("agent:old:k", "telegram") == 1


async def test_sessions_without_profile_get_one(db: Any, story: Story) -> None:
    for session_id, label in [("a", None), ("b", ""), ("c", "  "), ("d", "bot")]:
        await story.new(session_id, profile_name=label)
    assert await db.backfill_null_session_profiles(" ") == 0
    assert await db.backfill_null_session_profiles("work") == 3
    assert await db.backfill_null_session_profiles("work") == 0
    assert (await db.get_session("d"))["profile_name"] == "bot"


async def test_crossed_profiles(db: Any, story: Story) -> None:  # gateway 11.33
    await story.new("p", 1, session_key="agent:main:x:1", profile_name="default")
    await story.new("w", 2, session_key="agent:work:x:1", profile_name="default", parent="p")
    await story.new("ok", 3, session_key="agent:main:x:2", parent="p")
    await story.new("keyless", 3, profile_name="bot", parent="w")
    await story.new("odd", 3, session_key="agent:work", profile_name="bot")
    await story.msg("w")
    assert await db.find_crossed_profile_sessions("default") == {
        "mislabelled": [
            {
                "id": "w",
                "session_key": "agent:work:x:1",
                "profile_name": "default",
                "key_profile": "work",
            }
        ],
        "foreign": [
            {
                "id": "w",
                "session_key": "agent:work:x:1",
                "key_profile": "work",
                "message_count": 1,
            }
        ],
        "crossed_parents": [
            {
                "id": "w",
                "key_profile": "work",
                "parent_session_id": "p",
                "parent_profile": "default",
            }
        ],
    }
    everything = ["w", "p", "ok", "keyless", "odd", "unknown", None]
    assert await db.relabel_sessions_to_key_profile(everything) == 2
    assert (await db.get_session("w"))["profile_name"] == "work"
    assert (await db.get_session("ok"))["profile_name"] == "default"
    assert await db.relabel_sessions_to_key_profile(everything) == 0
    assert await db.sever_crossed_parents(everything) == 1
    assert (await db.get_session("w"))["parent_session_id"] is None
    assert (await db.get_session("keyless"))["parent_session_id"] == "w"
    assert await db.sever_crossed_parents(everything) == 0
    found = await db.find_crossed_profile_sessions("default")
    assert (found["mislabelled"], found["crossed_parents"]) == ([], [])
    assert ids((await db.find_crossed_profile_sessions("work"))["foreign"]) == ["p", "ok"]
    with pytest.raises(TypeError, match="ids must be a list"):
        await db.sever_crossed_parents("w")
    assert await db.rekey_legacy_main_sessions(["p", "w", "nobody"], "main") == 1
    moved = await db.get_session("p")
    assert (moved["session_key"], moved["profile_name"]) == ("agent:main~:x:1", "main")
    assert await db.rekey_legacy_main_sessions(["ok"], "") == 0


async def test_profiles_of_a_chat(db: Any, story: Story) -> None:
    keys = {
        "agent:work:telegram:dm:42",
        "agent:main:telegram:group:42:7",
        "agent:a:telegram:dm:421",
        "agent:b:discord:dm:42",
        "agent:c:telegram:dm:4",
        "agent:main~:matrix:room:!r:example.org",
    }
    for number, key in enumerate(sorted(keys)):
        await story.new(f"s{number}", session_key=key)
    await db.save_gateway_routing_entry("agent:routed:telegram:dm:42", "{}")
    assert await db.key_profiles_for_chat("telegram", 42) == {"work", "default", "routed"}
    assert await db.key_profiles_for_chat("matrix", "!r:example.org") == {"main"}
    for none in [("telegram", ""), ("", "42"), ("telegram", "%"), (None, None)]:
        assert await db.key_profiles_for_chat(*none) == set()


async def test_topics_of_default_go_to_the_profile_of_their_key(
    db: Any, raw: Raw, story: Story
) -> None:
    nothing = dict.fromkeys(
        ("bindings_relabelled", "bindings_duplicates_removed", "mode_rows_relabelled"), 0
    )
    assert await db.find_profile_less_telegram_topic_rows() == []
    assert await db.relabel_telegram_topic_rows([{"chat_id": 1, "thread_id": 1}]) == nothing
    if not raw.is_postgres:
        tables = "SELECT name FROM sqlite_schema WHERE name LIKE 'telegram%'"
        assert await raw.fetch(tables) == []

    async def bind(session_id: str, chat: int, thread: int, key: str, profile: str = "") -> None:
        await story.new(session_id)
        await db.bind_telegram_topic(
            chat_id=chat,
            thread_id=thread,
            user_id="u",
            session_key=key,
            session_id=session_id,
            profile_name=profile,
        )

    await bind("own", 1, 1, "agent:main:telegram:dm:1")
    await bind("work", 1, 2, "agent:work:telegram:dm:1")
    await bind("twice", 2, 3, "agent:work:telegram:dm:2")
    await bind("first", 2, 3, "agent:work:telegram:dm:2", "work")
    await bind("other", 3, 4, "agent:bot:telegram:dm:3")
    for chat in (1, 2, 3):
        await db.enable_telegram_topic_mode(chat_id=chat, user_id="u")
    await db.enable_telegram_topic_mode(chat_id=2, user_id="v", profile_name="work")
    rows = await db.find_profile_less_telegram_topic_rows()
    assert [(row["chat_id"], row["thread_id"], row["key_profile"]) for row in rows] == [
        ("1", "2", "work"),
        ("2", "3", "work"),
        ("3", "4", "bot"),
    ]
    assert rows[0]["session_key"] == "agent:work:telegram:dm:1"
    assert await db.relabel_telegram_topic_rows(rows) == {
        "bindings_relabelled": 2,
        "bindings_duplicates_removed": 1,
        "mode_rows_relabelled": 2,
    }
    modes = "SELECT profile_name, chat_id, user_id FROM telegram_dm_topic_mode ORDER BY 2, 1"
    assert await raw.fetch(modes) == [
        ("default", "1", "u"),
        ("work", "1", "u"),
        ("default", "2", "u"),
        ("work", "2", "v"),
        ("bot", "3", "u"),
    ]
    assert await db.is_telegram_session_linked_to_topic(session_id="twice") is False
    assert await db.relabel_telegram_topic_rows(rows) == nothing
