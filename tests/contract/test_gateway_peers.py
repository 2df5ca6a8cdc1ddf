"""Whom a session talks with, and in which session a conversation goes on (gateway 1 to 3)."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hermes_orm import (
    SessionDB,
    is_automatic_end_reason,
    session_key_namespace,
    session_key_profile,
)
from tests.contract.stories import Story, ids
from tests.raw import Raw

CHAT = {"user_id": "u", "chat_id": "c", "chat_type": "dm"}
PEER = {"source": "telegram", "session_key": "k", **CHAT}
START = 1767225600.0


@pytest.fixture(autouse=True)
def standing_clock(clock: Any) -> None:
    """Every call happens at START."""


async def found(db: SessionDB, **changes: Any) -> str | None:
    row = await db.find_latest_gateway_session_for_peer(**{**PEER, **changes})
    return None if row is None else row["id"]


async def keyed(story: Story, session_id: str, ago: float = 0, **columns: Any) -> None:
    """A session of the peer that started `ago` seconds before START."""
    await story.new(session_id, START - ago, **{**PEER, **columns})


async def record(db: SessionDB, session_id: str, **changes: Any) -> None:
    await db.record_gateway_session_peer(session_id, **{**PEER, **changes})


async def row(db: SessionDB, session_id: str) -> Any:
    return await db.get_session(session_id)


async def test_record_overwrites_the_peer_and_keeps_details(db: SessionDB, raw: Raw) -> None:
    await record(db, "s", display_name="D", transport_profile="bot")  # gateway 11.1
    stored = await row(db, "s")
    assert {key: stored[key] for key in PEER} == PEER
    assert (stored["display_name"], stored["started_at"]) == ("D", START)
    await db.record_gateway_session_peer("s", source="discord", session_key="k2")
    stored = await row(db, "s")
    assert (stored["source"], stored["session_key"]) == ("discord", "k2")
    assert [stored[key] for key in (*CHAT, "display_name")] == [None, None, None, "D"]
    further = "SELECT created_source, transport_profile FROM sessions WHERE id = ?"
    assert await raw.fetch(further, "s") == [("telegram", "bot")]

    await db.update_token_counts("z", input_tokens=3)  # gateway 11.2
    await record(db, "z")
    stored = await row(db, "z")
    assert (stored["source"], stored["session_key"], stored["input_tokens"]) == ("telegram", "k", 3)
    assert await raw.fetch(further, "z") == [("unknown", None)]

    for key in (None, ""):  # gateway 11.3
        await record(db, "none", session_key=key)
    await record(db, "", session_key="k")
    await record(db, "none", include_compression_ancestors=True)
    assert await row(db, "none") is None
    await db.end_session("s", "agent_close")
    await record(db, "s", user_id="v")
    stored = await row(db, "s")
    assert (stored["user_id"], stored["end_reason"]) == ("v", "agent_close")


async def test_a_continuation_shares_the_peer_of_its_lineage(db: SessionDB, story: Story) -> None:
    await db.create_session("p", "telegram", session_key="k", **CHAT)  # gateway 11.4
    await db.end_session("p", "compression")
    await db.create_session("c", "telegram", parent_session_id="p")
    assert await found(db) == "c"

    await story.new("q", 1, source="telegram")
    await story.end("q", "compression", 2)
    await story.new("d", 2, source="telegram", parent="q")
    await record(db, "d", session_key="K", include_compression_ancestors=True)
    assert [(await row(db, name))["session_key"] for name in "qd"] == ["K", "K"]

    await story.new("own", 3, parent="q", config={"_branched_from": "q"})
    await record(db, "own", session_key="B", include_compression_ancestors=True)
    assert [(await row(db, name))["session_key"] for name in ("q", "own")] == ["K", "B"]

    # G-5: the continuation of a branch has the marker that it inherited.
    marker = {"_branched_from": "elsewhere"}
    await story.new("b", 4, config=marker)
    await story.end("b", "compression", 5)
    await story.new("bc", 5, parent="b", config=marker)
    await record(db, "bc", session_key="BC", include_compression_ancestors=True)
    assert [(await row(db, name))["session_key"] for name in ("b", "bc")] == ["BC", "BC"]


async def test_the_latest_session_is_that_with_messages_until_a_reset(
    db: SessionDB, story: Story
) -> None:
    await keyed(story, "a", 1000)  # gateway 11.5
    await story.msg("a", at=START - 1000)
    await keyed(story, "b", 500)
    assert await found(db) == "a"
    await db.end_session("a", "agent_close")
    assert await found(db) == "a"
    result = await db.find_latest_gateway_session_for_peer(**PEER)
    assert result is not None
    expected = {**(await row(db, "a")), "created_source": None, "transport_profile": None}
    assert result == expected

    assert await db.promote_to_session_reset("a") is True  # gateway 11.6
    assert await db.latest_conversation_boundary("k", "telegram") == 1
    assert await found(db) is None
    await keyed(story, "c1", -1)
    assert await found(db) == "c1"
    assert await db.promote_to_session_reset("a", "idle") is False
    assert (await row(db, "a"))["end_reason"] == "session_reset"
    assert await db.latest_conversation_boundary("k", "telegram") == 1

    assert await found(db, session_key="other") is None  # gateway 11.7
    await story.msg("c1", at=START + 2)
    assert await found(db, session_key="other") == "c1"
    assert await found(db, session_key="other", chat_type=None) is None
    assert await found(db, session_key="other", user_id="x") is None
    assert await found(db, session_key="other", thread_id="1") is None
    assert await found(db, session_key="other", thread_id="") == "c1"
    assert await found(db, session_key=None) is None
    assert await found(db, session_key="") is None
    assert await found(db, source="Telegram") is None


async def test_empty_is_null_in_every_column_of_a_peer(db: SessionDB, story: Story) -> None:
    await keyed(story, "null", user_id=None, thread_id=None, session_key="x")
    await story.msg("null", at=START)
    await keyed(story, "empty", user_id="", thread_id="", chat_id="c2", session_key="y")
    await story.msg("empty", at=START)
    for user in (None, ""):
        assert await found(db, user_id=user) == "null"
        assert await found(db, user_id=user, chat_id="c2") == "empty"


async def test_which_ends_fence_or_recover(db: SessionDB, story: Story) -> None:
    await keyed(story, "a", 1000)  # gateway 11.8
    await story.msg("a", at=START - 1000)
    await keyed(story, "b", 500)
    await story.end("b", "new_session", START - 100)
    assert await found(db) == "a"
    await story.end("a", "tui_shutdown", START)
    assert await found(db) is None

    await keyed(story, "h", 900, session_key="h")  # gateway 11.9
    await story.raw.execute("UPDATE sessions SET handoff_state = 'completed' WHERE id = 'h'")
    await story.end("h", "cli_close", START)
    assert await found(db, session_key="h") == "h"
    assert await db.promote_to_session_reset("h") is True  # G-8
    assert await found(db, session_key="h") is None
    for kept in ("compression", "new_session", "session_reset"):
        await story.end("h", kept, START)
        assert await db.promote_to_session_reset("h") is False
    assert await found(db, session_key="h") is None
    assert await db.promote_to_session_reset("unknown") is False

    await keyed(story, "x", 1000, session_key="x")  # gateway 11.10, G-6
    await story.msg("x", at=START)
    await keyed(story, "y", 600, session_key="x")
    await story.end("y", "session_reset", START - 500)
    assert await found(db, session_key="x") == "x"
    await keyed(story, "z", 700, session_key="x2", chat_id="far", archived=1, hidden=1)
    assert await found(db, session_key="x2", chat_id="far") == "z"


async def test_the_owner_fences_what_a_chat_finds(
    db: SessionDB, story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    await keyed(story, "a", session_key="own", profile_name="work")  # gateway 11.11
    await story.msg("a", at=START)
    db.database.own_profile = "default"
    assert db.own_profile_name() == db._own_profile_name() == "default"
    assert await found(db) is None
    assert await found(db, session_key="own") == "a"
    db.database.own_profile = None
    assert await found(db) == "a"
    assert await found(db, session_key="agent:main:telegram:dm:c") is None  # G-4
    assert await found(db, session_key="agent:work:telegram:dm:c") == "a"
    await story.raw.execute("UPDATE sessions SET profile_name = NULL")
    assert await found(db, session_key="agent:main:telegram:dm:c") == "a"
    db.database.own_profile = "default"
    assert await found(db) == "a"


async def test_new_sessions_belong_to_the_owner(db: SessionDB, story: Story) -> None:
    await db.create_session("before", "cli")
    db.database.own_profile = "work"
    await db.create_session("a", "cli", profile_name=" ")
    await db.create_session("b", "cli", profile_name="mine", system_prompt="p")
    await db.ensure_session("c", parent_session_id="a")
    await record(db, "d")
    await db.create_session("before", "cli", model="m")
    profiles = [(await row(db, name))["profile_name"] for name in ("a", "b", "c", "d", "before")]
    assert profiles == ["work", "mine", "work", "work", None]
    await db.create_session("before", "cli", profile_name="late")
    await record(db, "b")
    profiles = [(await row(db, name))["profile_name"] for name in ("before", "b")]
    assert profiles == ["late", "mine"]


async def test_a_file_tells_its_profile_by_its_place(
    hermes_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def owner(path: Path) -> str | None:
        return SessionDB(path).own_profile_name()

    profiles = hermes_home / "profiles"
    places = {
        hermes_home / "state.db": "default",
        profiles / "work-1" / "state.db": "work-1",
        profiles / "Work" / "state.db": None,
        profiles / ("a" * 65) / "state.db": None,
        profiles / "work" / "x" / "state.db": None,
        hermes_home / "other.db": None,
        tmp_path / "state.db": None,
        Path(":memory:"): None,
    }
    assert {path: owner(path) for path in places} == places
    monkeypatch.setenv("HERMES_HOME", str(profiles / "work"))
    assert owner(hermes_home / "state.db") == "default"
    assert owner(profiles / "work" / "state.db") == "work"
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HERMES_HOME", str(tmp_path / ".hermes" / "profiles" / "work"))
    assert owner(tmp_path / ".hermes" / "state.db") == "default"


def test_a_postgres_store_tells_its_profile_by_its_settings(hermes_home: Path) -> None:
    dsn = "postgresql+asyncpg://u@nowhere/db"
    assert SessionDB(dsn).own_profile_name() is None
    hermes_home.mkdir()
    (hermes_home / "config.yaml").write_text("database: {postgres: {profile: work}}")
    assert SessionDB(dsn).own_profile_name() == "work"


async def test_origins_find_one_open_session(db: SessionDB, story: Story) -> None:
    async def by(**changes: Any) -> str | None:
        return await db.find_session_by_origin(
            **{"platform": "Telegram", "chat_id": "c", **changes}
        )

    await keyed(story, "a", 1000)  # gateway 11.12
    await keyed(story, "b", 500, session_key="k2", user_id="v")
    answers = {user: await by(user_id=user) for user in (None, "u", "v", "z")}
    assert answers == {None: None, "u": "a", "v": "b", "z": None}
    await story.end("b", "agent_close", START)
    assert await by(user_id="z") == await by() == await by(platform="telegram") == "a"
    await keyed(story, "c", 400, session_key="k3", user_id=None)
    assert await by() == "c"
    await keyed(story, "d", 300, session_key="k4", thread_id="7", source="TELEGRAM")
    assert (await by(thread_id="7"), await by(thread_id=""), await by()) == ("d", "c", "d")
    await keyed(story, "e", 200, session_key="", chat_id="9")  # G-1
    assert await by(chat_id=9) is None
    await keyed(story, "f", 200, chat_id="9")
    assert await by(chat_id=9) == "f"
    for nothing in ({"platform": ""}, {"chat_id": None}, {"chat_id": ""}, {"platform": "tele"}):
        assert await by(**nothing) is None


async def test_a_list_shows_the_newest_session_of_each_key(db: SessionDB, story: Story) -> None:
    async def listed(**options: Any) -> list[str]:
        return ids(await db.list_gateway_sessions(**options))

    await keyed(story, "a", 1000)  # gateway 11.13
    await keyed(story, "b", 500)
    await story.end("b", "agent_close", START - 400)
    await keyed(story, "x", 300, session_key="k2", source="Discord", archived=1, hidden=1)
    await keyed(story, "keyless", session_key="")
    await story.new("cli", START)
    assert await listed() == ["x"]
    assert await listed(active_only=False) == ["x", "b"]
    assert await listed(platform="discord") == ["x"]
    assert await listed(platform="telegram", active_only=False) == ["b"]
    await keyed(story, "b2", 500)  # G-7: equal starts
    assert await listed() == ["x", "b2"]
    await story.msg("b2", at=START)
    first = (await db.list_gateway_sessions())[0]
    assert (first["id"], first["last_active"], first["message_count"]) == ("b2", START, 1)
    assert "created_source" in first


def test_the_runtime_of_a_session() -> None:
    runtime = SessionDB.session_gateway_runtime
    nested: dict[str, Any] = {
        "gateway_runtime": {"provider": "p", "x": None, "y": 1},
        "provider": "q",
    }
    cases: list[tuple[Any, dict[str, Any]]] = [  # gateway 11.14
        ({"model_config": nested}, {"provider": "p", "y": 1}),
        ({"model_config": json.dumps(nested)}, {"provider": "p", "y": 1}),
        ({"model_config": "{bad", "billing_provider": " openrouter "}, {"provider": "openrouter"}),
        ({"billing_provider": "Auto"}, {}),
        (
            {"model_config": {"gateway_runtime": {"model": "m"}}, "billing_provider": "bp"},
            {"provider": "bp"},
        ),
        ({"model_config": {"gateway_runtime": {"model": "m", "x": None}}}, {"model": "m"}),
        (
            {"model_config": {"base_url": "b", "api_mode": ""}, "billing_provider": "bp"},
            {"base_url": "b", "provider": "bp"},
        ),
        ({"model_config": {"provider": "q"}, "billing_provider": "bp"}, {"provider": "q"}),
        ({"model_config": "[1]"}, {}),
        ({"model_config": {"gateway_runtime": "text"}}, {}),
        ({}, {}),
        (None, {}),
    ]
    for meta, expected in cases:
        assert runtime(meta) == expected


async def test_the_latest_route_of_the_main_loop(db: SessionDB, clock: Any) -> None:
    async def use(model: str, **fields: Any) -> None:
        await db.update_token_counts(
            "s", input_tokens=1, model=model, billing_provider="p", api_call_count=1, **fields
        )

    assert await db.get_recent_session_model_route("s") is None  # gateway 11.15
    for _ in range(5):
        await use("m1")
    clock.advance(1)
    await use("m2")
    clock.advance(1)
    await db.record_auxiliary_usage("s", "title", model="mt", billing_provider="p", input_tokens=1)
    route = await db.get_recent_session_model_route("s")
    assert route is not None and (route["model"], route["api_call_count"]) == ("m2", 1)


async def test_generations_count_resets_and_outlive_sessions(db: SessionDB) -> None:
    async def boundary() -> int | None:
        return await db.latest_conversation_boundary("k", "telegram")

    await db.create_session("s", "telegram", session_key=" k ")  # gateway 11.30
    assert await boundary() is None
    await db.end_session("s", "idle")
    assert await boundary() == 1
    await db.end_session("s", "idle")
    assert await boundary() == 1
    await db.reopen_session("s")
    await db.end_session("s", "idle")
    assert await boundary() == 2
    await db.delete_session("s")
    assert await boundary() == 2
    for reason in ("compression", "new_session", "free text"):
        await db.create_session(reason, "telegram", session_key="k")
        assert await db.promote_to_session_reset(reason, reason) is True
    assert await boundary() == 2
    for key, source in (("", "telegram"), ("k", ""), (" k ", "telegram"), ("k\x00", "telegram")):
        assert await db.latest_conversation_boundary(key, source) is None


async def test_small_ones_ignore_unknown_sessions(db: SessionDB, session: str) -> None:
    await db.set_expiry_finalized(session)
    assert (await row(db, session))["expiry_finalized"] == 1
    await db.set_expiry_finalized(session, False)
    assert (await row(db, session))["expiry_finalized"] == 0
    for unknown in ("unknown", "", "a\x00"):
        await db.set_expiry_finalized(unknown)


def test_keys_and_reasons() -> None:
    profiles = {
        "agent:main:telegram:dm:1": "default",
        "agent:main~:x": "main",
        "agent:work:x": "work",
        "agent:main": None,
        "agent::x": None,
        "other:main:x": None,
        "": None,
    }
    assert {key: session_key_profile(key) for key in profiles} == profiles
    assert session_key_profile(None) is None
    namespaces = {None: "main", "": "main", "default": "main", "main": "main~", "work": "work"}
    for profile, namespace in namespaces.items():
        assert session_key_namespace(profile) == f"agent:{namespace}"
    assert [
        is_automatic_end_reason(reason) for reason in (None, 5, "agent_close", "lru_evict")
    ] == [
        False,
        False,
        True,
        True,
    ]
    assert not is_automatic_end_reason("new_session")


async def test_of_two_processes_one_promotes(
    db: SessionDB, open_store: Callable[..., SessionDB]
) -> None:
    await db.create_session("s", "telegram", session_key="k")
    stores = [db, open_store()]
    results = await asyncio.gather(*(store.promote_to_session_reset("s") for store in stores * 5))
    assert sorted(results) == [False] * 9 + [True]
    assert await db.latest_conversation_boundary("k", "telegram") == 1
