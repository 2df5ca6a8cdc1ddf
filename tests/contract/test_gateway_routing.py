"""Routing entries, and the sessions of peers that nobody ever used (gateway 5, usage 6)."""

import asyncio
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hermes_orm import SessionDB
from tests.contract.stories import Story, ids
from tests.raw import Raw

DAY = 86_400.0
START = 1767225600.0


async def test_entries_live_in_scopes(db: SessionDB, clock: Any) -> None:
    await db.save_gateway_routing_entry("k", '{"a": 1}')  # usage 6
    await db.save_gateway_routing_entry("k", '{"a" :2}', scope="A")
    await db.save_gateway_routing_entry("", "{}")
    await db.save_gateway_routing_entry("x", "")
    assert await db.load_gateway_routing_entries() == {"k": '{"a": 1}'}
    assert await db.load_gateway_routing_entries(scope="A") == {"k": '{"a" :2}'}
    clock.advance(5)
    await db.save_gateway_routing_entry("k", "ä 🙂", scope="A")
    await db.replace_gateway_routing_entries({"k2": "{bad", "k3": "{}", "": "{}", "k4": ""})
    assert await db.list_gateway_routing_rows() == [
        {"scope": "", "session_key": "k2", "entry_json": "{bad", "updated_at": START + 5},
        {"scope": "", "session_key": "k3", "entry_json": "{}", "updated_at": START + 5},
        {"scope": "A", "session_key": "k", "entry_json": "ä 🙂", "updated_at": START + 5},
    ]
    await db.delete_gateway_routing_entries([])
    await db.delete_gateway_routing_entries(["k2", "unknown", "k\x00"])
    assert await db.load_gateway_routing_entries() == {"k3": "{}"}
    await db.replace_gateway_routing_entries({})
    assert await db.load_gateway_routing_entries() == {}
    assert await db.load_gateway_routing_entries(scope="unknown") == {}
    with pytest.raises(ValueError, match="session key"):
        await db.save_gateway_routing_entry("k\x00", "{}")


async def test_rows_are_taken_and_given_in_batches(db: SessionDB, clock: Any) -> None:
    async def entry(scope: str, key: str, entry: str) -> None:
        await db.save_gateway_routing_entry(key, entry, scope=scope)

    await entry("A", "k1", '{"session_id": "s1", "n": 1}')  # gateway 11.21
    await entry("B", "k1", '{"session_id": "s1", "n": 2}')
    await entry("A", "k2", '{bad "s1"')
    await entry("A", "k3", '["s1"]')
    await entry("A", "k4", '{"other": "s1"}')
    assert await db.gateway_routing_entry_for_session("s1") == {"session_id": "s1", "n": 1}
    clock.advance(1)
    await entry("B", "k1", '{"session_id": "s1", "n": 3}')
    assert await db.gateway_routing_entry_for_session("s1") == {"session_id": "s1", "n": 3}
    assert await db.delete_gateway_routing_rows([("A", "k2"), ("A", "nope"), ("A", "k2")]) == 1
    assert await db.delete_gateway_routing_rows([]) == 0

    precise = 1767225600.123457
    rows = [("A", "k1", "{}", 5.0), ("C", "k1", "{}", 6.0), ("C", "k1", "{x}", 7.0)]
    assert await db.insert_gateway_routing_rows_if_absent(rows) == 1
    further = [("C", "k5", "'\\\"", precise), ("C", "", "{}", 1.0), ("C", "k6", "", 1.0)]
    assert await db.insert_gateway_routing_rows_if_absent(further) == 1
    assert await db.insert_gateway_routing_rows_if_absent([]) == 0
    stored = {(r["scope"], r["session_key"]): r for r in await db.list_gateway_routing_rows()}
    assert stored["C", "k1"]["updated_at"] == 6.0
    assert stored["C", "k1"]["entry_json"] == "{}"
    assert stored["C", "k5"] == {
        "scope": "C",
        "session_key": "k5",
        "entry_json": "'\\\"",
        "updated_at": precise,
    }
    assert "n" in json.loads(stored["A", "k1"]["entry_json"])
    many = [("M", f"k{number}", "{}", float(number)) for number in range(2_500)]
    assert await db.insert_gateway_routing_rows_if_absent(many) == 2_500
    assert await db.delete_gateway_routing_rows([row[:2] for row in many]) == 2_500

    for nothing in (None, "", "s", "S1", "a\x00", "%"):  # G-13
        assert await db.gateway_routing_entry_for_session(nothing) is None  # type: ignore[arg-type]
    for odd in ("ä\\_%\"'", "x" * 3):
        for is_ascii in (True, False):
            await entry("O", odd, json.dumps({"session_id": odd}, ensure_ascii=is_ascii))
            assert await db.gateway_routing_entry_for_session(odd) == {"session_id": odd}


async def test_two_stores_share_a_batch(
    db: SessionDB, open_store: Callable[..., SessionDB]
) -> None:
    stores = [db, open_store()] * 2
    rows = [("A", f"k{number}", "{}", 1.0) for number in range(200)]
    inserted = await asyncio.gather(
        *(store.insert_gateway_routing_rows_if_absent(rows) for store in stores)
    )
    assert sum(inserted) == 200
    await asyncio.gather(
        *(
            store.replace_gateway_routing_entries({"k1": "{}", f"own {number}": "{}"}, scope="B")
            for number, store in enumerate(stores)
        )
    )
    assert "k1" in await db.load_gateway_routing_entries(scope="B")
    keys = [row[:2] for row in rows]
    deleted = await asyncio.gather(*(store.delete_gateway_routing_rows(keys) for store in stores))
    assert sum(deleted) == 200
    for number in range(20):
        await db.create_session(f"n{number}", "tg", session_key=f"n{number}")
    pruned = await asyncio.gather(
        *(store.prune_never_active_keyed_sessions(older_than_days=0) for store in stores)
    )
    assert sum(count for count, _, _ in pruned) == 20


USED: list[dict[str, Any]] = [
    {"title": "T"},
    {"last_activity_at": START},
    {"pinned": 1},
    {"archived": 1},
    {"message_count": 1},
    {"tool_call_count": 1},
    {"api_call_count": 1},
    {"input_tokens": 1},
    {"output_tokens": 1},
    {"session_key": ""},
    {"session_key": None},
    {"ended_at": START},
]
"""What keeps a session from being never active."""


async def test_sessions_without_any_use_are_pruned_with_their_routes(
    db: SessionDB, story: Story, raw: Raw, tmp_path: Path
) -> None:
    now = time.time()
    for number, columns in enumerate(USED):
        await story.new(f"u{number}", now - 5 * DAY, **{"session_key": "k", **columns})
    for name in ("never", "spoken", "leased", "locked"):
        await story.new(name, now - 5 * DAY, source="tg", session_key=f"key {name}", chat_id="c")
    await raw.execute(
        "INSERT INTO messages (session_id, role, timestamp, active) "
        "VALUES ('spoken', 'user', ?, 0)",
        now,
    )
    await story.new("young", now - DAY / 2, session_key="k")
    listed = await db.list_never_active_keyed_sessions(older_than_days=1)  # gateway 11.22
    assert ids(listed) == ["leased", "locked", "never"]
    assert listed[2] == {
        "id": "never",
        "session_key": "key never",
        "source": "tg",
        "chat_id": "c",
        "chat_type": None,
        "user_id": None,
        "started_at": now - 5 * DAY,
    }
    await db.try_acquire_session_turn_lease("leased", "h", ttl_seconds=60)
    await db.try_acquire_compression_lock("locked", "h", 60)
    for key, session in (("key never", "never"), ("other key", "never"), ("young", "young")):
        await db.save_gateway_routing_entry(key, json.dumps({"session_id": session}), scope="A")
    await db.save_gateway_routing_entry("bad", '{never "never"')
    await db.create_session("child", "cli", parent_session_id="never")
    (tmp_path / "never.json").touch()
    (tmp_path / "leased.json").touch()
    prune = db.prune_never_active_keyed_sessions
    assert await prune(older_than_days=1, sessions_dir=tmp_path) == (1, 2, 2)
    assert await db.get_session("never") is None
    assert not (tmp_path / "never.json").exists() and (tmp_path / "leased.json").exists()
    left = [row["session_key"] for row in await db.list_gateway_routing_rows()]
    assert left == ["bad", "young"]
    child = await db.get_session("child")
    assert child is not None and child["parent_session_id"] is None
    assert await prune(older_than_days=1) == (0, 0, 2)
    await db.release_session_turn_lease("leased", "h")
    await db.release_compression_lock("locked", "h")
    assert await prune(older_than_days=0) == (3, 1, 0)
    assert await db.session_count(include_archived=True) == len(USED) + 2
    for wrong in (-1, math.nan, math.inf):
        with pytest.raises(ValueError, match="older_than_days"):
            await prune(older_than_days=wrong)
        with pytest.raises(ValueError, match="older_than_days"):
            await db.list_never_active_keyed_sessions(older_than_days=wrong)
