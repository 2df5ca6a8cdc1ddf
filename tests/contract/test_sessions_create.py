"""Creating sessions and completing them: sessions.md section 3."""

import asyncio
import json
import sqlite3
from typing import Any

import pytest
from sqlalchemy import exc

INTEGRITY_ERRORS = (sqlite3.IntegrityError, exc.IntegrityError)
GROUP = ("user_id", "session_key", "chat_id", "chat_type", "thread_id", "display_name")
PEER = {**{name: f"{name} 1" for name in GROUP}, "origin_json": '{"a": 1}'}
PLACE = {"cwd": "/w", "git_repo_root": "/r", "profile_name": "pr"}


async def config_of(db: Any, session_id: str) -> Any:
    text = (await db.get_session(session_id))["model_config"]
    return None if text is None else json.loads(text)


async def values_of(db: Any, session_id: str, *keys: str) -> tuple[Any, ...]:
    row = await db.get_session(session_id)
    return tuple(row[key] for key in keys)


async def test_fresh_session_has_the_defaults(db: Any, raw: Any, clock: Any) -> None:
    assert await db.create_session("s", "cli") == "s"
    row = await db.get_session("s")
    given = {"id": "s", "source": "cli", "started_at": clock()}
    counters = {key for key in row if key.endswith(("_tokens", "_count", "_streak"))}
    flags = {"expiry_finalized", "archived", "pinned", "hidden"}
    expected = dict.fromkeys(row) | dict.fromkeys(counters | flags, 0) | given
    assert row == expected
    assert all(type(row[key]) is int for key in counters | flags)
    assert await raw.fetch("SELECT created_source FROM sessions") == [("cli",)]


async def test_second_call_fills_only_what_is_missing(db: Any, raw: Any, clock: Any) -> None:
    await db.create_session("s", "cli")
    started = clock()
    clock.advance(5)
    assert await db.create_session("s", "telegram", model="m", user_id="u", cwd="/w") == "s"
    assert await values_of(db, "s", "source", "model", "user_id", "cwd", "started_at") == (
        "cli",
        "m",
        "u",
        "/w",
        started,
    )
    await db.ensure_session("s", model="n", cwd="/x", chat_id="c")
    assert await values_of(db, "s", "model", "cwd", "chat_id") == ("m", "/w", "c")
    assert await raw.fetch("SELECT created_source FROM sessions") == [("cli",)]


async def test_empty_text_counts_as_set(db: Any) -> None:
    await db.create_session("s", "cli", model="")
    await db.create_session("s", "cli", model="b", model_config={})
    assert await values_of(db, "s", "model", "model_config") == ("", None)


async def test_ended_session_is_completed_and_stays_ended(db: Any) -> None:
    await db.create_session("s", "cli")
    await db.end_session("s", "done")
    await db.create_session("s", "cli", model="m")
    assert await values_of(db, "s", "model", "end_reason") == ("m", "done")


async def test_ensure_creates_with_unknown_source(db: Any) -> None:
    assert await db.ensure_session("s", "cli", "m") == "s"
    assert await db.ensure_session("t") == "t"
    assert await values_of(db, "s", "source", "model") == ("cli", "m")
    assert await values_of(db, "t", "source", "model") == ("unknown", None)


# model_config


@pytest.mark.parametrize("marker", ["x", "ü", None])
async def test_placeholder_of_a_reset_gets_its_config_once(db: Any, marker: str | None) -> None:
    await db.create_session("r", "cli", model_config={"_reset_from": marker})
    await db.create_session("r", "cli", model_config={"t": 1, "_reset_from": "y"}, cwd="/w")
    text = (await db.get_session("r"))["model_config"]
    assert text == json.dumps({"t": 1, "_reset_from": marker}, separators=(",", ":"))
    await db.create_session("r", "cli", model_config={"t": 2}, chat_id="c")
    assert await values_of(db, "r", "model_config", "cwd", "chat_id") == (text, "/w", "c")


async def test_config_with_more_than_the_reset_marker_is_kept(db: Any) -> None:
    await db.create_session("r", "cli", model_config={"_reset_from": "x", "k": 1})
    await db.create_session("r", "cli", model_config={"t": 1}, cwd="/w")
    assert await config_of(db, "r") == {"_reset_from": "x", "k": 1}
    assert await values_of(db, "r", "cwd") == ("/w",)


async def test_config_is_stored_as_valid_ascii_json(db: Any) -> None:
    await db.create_session("a", "cli", model_config={"ü": float("nan"), "n": [1, "\0", "\ud800"]})
    text = (await db.get_session("a"))["model_config"]
    assert text == '{"\\u00fc": null, "n": [1, "\\u0000", "\\ud800"]}'
    await db.create_session("b", "cli", model_config='{"as":"is"}')
    await db.create_session("c", "cli", model_config="{bad")
    assert await values_of(db, "b", "model_config") == ('{"as":"is"}',)
    assert await config_of(db, "c") == "{bad"


async def test_config_that_is_no_json_writes_nothing(db: Any) -> None:
    with pytest.raises(TypeError):
        await db.create_session("s", "cli", model_config={"a": object()})
    assert await db.get_session("s") is None


async def test_malformed_stored_config_is_kept(db: Any, raw: Any) -> None:
    await db.create_session("s", "cli")
    for malformed in ('{"_reset_from": ', '["_reset_from"]', ""):
        await raw.execute("UPDATE sessions SET model_config = ?", malformed)
        await db.create_session("s", "cli", model_config={"t": 1})
        assert await values_of(db, "s", "model_config") == (malformed,)


# Parents


async def test_child_inherits_its_place_only(db: Any, raw: Any) -> None:
    await db.create_session("p", "cli", **PLACE, **PEER, model="m", system_prompt="P")
    await raw.execute("UPDATE sessions SET git_branch = 'b', transport_profile = 'bot'")
    await db.create_session("c", "cli", parent_session_id="p")
    assert await values_of(db, "c", *PLACE, "git_branch") == (*PLACE.values(), "b")
    assert await values_of(db, "c", *PEER, "model", "system_prompt") == (None,) * 9
    assert await raw.fetch("SELECT transport_profile FROM sessions WHERE id = 'c'") == [(None,)]


async def test_continuation_inherits_its_peer_too(db: Any, raw: Any) -> None:
    await db.create_session("p", "cli", **PLACE, **PEER)
    await raw.execute("UPDATE sessions SET transport_profile = 'bot'")
    await db.end_session("p", "compression")
    await db.create_session("c", "cli", parent_session_id="p", cwd="/own", user_id="own")
    assert await values_of(db, "c", "cwd", "git_repo_root") == ("/own", "/r")
    assert await values_of(db, "c", *PEER) == ("own", *[*PEER.values()][1:])
    assert await raw.fetch("SELECT transport_profile FROM sessions WHERE id = 'c'") == [("bot",)]


@pytest.mark.parametrize("marker", ["_branched_from", "_delegate_from", "_reset_from"])
async def test_fork_of_a_compressed_session_has_no_peer(db: Any, marker: str) -> None:
    await db.create_session("p", "cli", **PLACE, **PEER)
    await db.end_session("p", "compression")
    await db.create_session("c", "cli", parent_session_id="p", model_config={marker: "p"})
    assert await values_of(db, "c", *PEER) == (None,) * 7
    assert await values_of(db, "c", *PLACE) == tuple(PLACE.values())


async def test_tool_of_a_compressed_session_has_no_peer(db: Any) -> None:
    await db.create_session("p", "cli", **PEER)
    await db.end_session("p", "compression")
    await db.create_session("c", "tool", parent_session_id="p")
    assert await values_of(db, "c", *PEER) == (None,) * 7


async def test_inherited_marker_makes_no_fork(db: Any) -> None:
    config = {"_delegate_from": "x"}
    await db.create_session("x", "cli")
    await db.create_session(
        "p", "cli", **PEER, parent_session_id="x", model_config=config, system_prompt="P"
    )
    await db.end_session("p", "compression")
    await db.create_session("c", "cli", parent_session_id="p", model_config=config)
    assert await values_of(db, "c", *PEER) == tuple(PEER.values())


async def test_child_of_an_open_parent_inherits_the_peer_on_a_later_call(db: Any) -> None:
    await db.create_session("p", "cli", **PEER)
    await db.create_session("c", "cli", parent_session_id="p")
    await db.end_session("p", "compression")
    await db.create_session("c", "cli")
    assert await values_of(db, "c", "chat_id") == (None,)
    await db.create_session("c", "cli", parent_session_id="p")
    assert await values_of(db, "c", *PEER) == tuple(PEER.values())


async def test_profile_does_not_pass_to_a_key_of_another_namespace(db: Any) -> None:
    await db.create_session("p", "cli", profile_name="work", session_key="agent:work:telegram:1")
    for child, key in [("a", "agent:main:telegram:1"), ("b", "agent:work:telegram:2"), ("c", None)]:
        await db.create_session(child, "cli", parent_session_id="p", session_key=key)
    profiles = [(await db.get_session(child))["profile_name"] for child in "abc"]
    assert profiles == [None, "work", "work"]


async def test_missing_parent_is_filled_and_then_kept(db: Any) -> None:
    await db.create_session("p", "cli", cwd="/w")
    await db.create_session("q", "cli", git_repo_root="/q")
    await db.create_session("c", "cli")
    await db.ensure_session("c", parent_session_id="p")
    assert await values_of(db, "c", "source", "parent_session_id", "cwd") == ("cli", "p", "/w")
    for parent in ("q", "ghost"):
        await db.create_session("c", "cli", parent_session_id=parent)
        assert await values_of(db, "c", "parent_session_id", "git_repo_root") == ("p", None)


async def test_parent_that_does_not_exist_writes_nothing(db: Any, raw: Any) -> None:
    for parent in ("ghost", ""):
        with pytest.raises(INTEGRITY_ERRORS, match=r"(?i)foreign key"):
            await db.create_session("c", "cli", parent_session_id=parent, system_prompt="P")
    assert await db.get_session("c") is None
    assert await raw.fetch("SELECT * FROM system_prompts") == []


async def test_source_is_required(db: Any) -> None:
    for exists in (False, True):
        with pytest.raises(INTEGRITY_ERRORS, match=r"(?i)not.null"):
            await db.create_session("s", None, model="m")
        if not exists:
            assert await db.get_session("s") is None
            await db.create_session("s", "cli")
    assert await values_of(db, "s", "source", "model") == ("cli", None)


async def test_cycle_is_refused(db: Any) -> None:
    await db.create_session("s", "cli")
    await db.create_session("m", "cli", parent_session_id="s")
    await db.create_session("c", "cli", parent_session_id="m")
    with pytest.raises(ValueError, match=r"'x'.*'x'.*cycle"):
        await db.create_session("x", "cli", parent_session_id="x")
    with pytest.raises(ValueError, match=r"'c'.*'s'.*cycle"):
        await db.ensure_session("s", parent_session_id="c", model="m")
    assert await db.get_session("x") is None
    assert await values_of(db, "s", "parent_session_id", "model") == (None, None)


async def test_ring_of_an_old_file_is_survived(db: Any, raw: Any) -> None:
    await db.create_session("a", "cli", cwd="/w")
    await db.create_session("b", "cli", parent_session_id="a")
    await raw.execute("UPDATE sessions SET parent_session_id = 'b' WHERE id = 'a'")
    await db.create_session("a", "cli", parent_session_id="b", model="m")
    await db.create_session("c", "cli")
    await db.create_session("c", "cli", parent_session_id="a")
    assert await values_of(db, "c", "parent_session_id", "cwd") == ("a", "/w")


# Arguments


@pytest.mark.parametrize("name", ["title", "git_branch", "nonsense"])
async def test_unknown_keyword_writes_nothing(db: Any, name: str) -> None:
    for operation in (db.create_session, db.ensure_session):
        with pytest.raises(TypeError, match=name):
            await operation("s", "cli", **{name: "x"})
    assert await db.get_session("s") is None


@pytest.mark.parametrize("bad", ["a\0b", "a\ud800"])
async def test_id_that_cannot_be_stored_is_refused(db: Any, bad: str) -> None:
    with pytest.raises(ValueError, match="session id"):
        await db.create_session(bad, "cli")
    with pytest.raises(ValueError, match="session id"):
        await db.create_session("s", "cli", parent_session_id=bad)
    assert await db.get_session(bad) is None
    assert await db.session_count() == 0


async def test_text_that_cannot_be_stored_is_replaced(db: Any) -> None:
    await db.create_session(
        "s", "cli", cwd="/x\ud800", display_name="a\0b", system_prompt="p\ud800"
    )
    assert await values_of(db, "s", "cwd", "display_name", "system_prompt") == (
        "/x\ufffd",
        "a\ufffdb",
        "p\ufffd",
    )


async def test_empty_and_long_ids_are_ids(db: Any) -> None:
    for key in ("", "x" * 1024):
        assert await db.create_session(key, "cli") == key
        assert (await db.get_session(key))["id"] == key
    await db.create_session("c", "cli", parent_session_id="")
    assert await values_of(db, "c", "parent_session_id") == ("",)


# Several at once


async def test_many_create_the_same_session(db: Any, open_store: Any, raw: Any) -> None:
    stores = [db, open_store()]
    await db.create_session("p", "cli", **PLACE)
    options: list[dict[str, Any]] = [
        {"model": "m", "system_prompt": "P"},
        {"cwd": "/own", "system_prompt": "Q"},
        {"parent_session_id": "p", "chat_id": "c"},
        {"model_config": {"k": 1}, "system_prompt": "R"},
    ]
    calls = [stores[n % 2].create_session("s", "cli", **options[n % 4]) for n in range(20)]
    assert await asyncio.gather(*calls) == ["s"] * 20
    row = await db.get_session("s")
    assert (row["model"], row["parent_session_id"], row["chat_id"]) == ("m", "p", "c")
    assert row["model_config"] == '{"k": 1}' and row["git_repo_root"] == "/r"
    assert row["system_prompt"] in {"P", "Q", "R"}
    assert await raw.fetch("SELECT prompt FROM system_prompts") == [(row["system_prompt"],)]
