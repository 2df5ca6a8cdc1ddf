"""Sessions that lost their key, or whose runtime is gone (gateway 4)."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from hermes_orm import SessionDB
from tests.contract.stories import Story
from tests.raw import Raw

NOW = 1_000_000.0
TG: dict[str, Any] = {"source": "telegram"}


async def donor(story: Story, session_id: str = "donor", **columns: Any) -> None:
    """A session with a key, quiet since NOW - 1000."""
    peer = {**TG, "session_key": "k", "user_id": "u", "chat_id": "c"}
    await story.new(session_id, NOW - 2000, **{**peer, **columns})
    await story.msg(session_id, at=NOW - 1000)


async def orphan(story: Story, session_id: str = "orphan", **columns: Any) -> None:
    """A session without a key that started at NOW - 950 and is active at NOW."""
    await story.new(session_id, NOW - 950, **{**TG, "user_id": "u", **columns})
    await story.msg(session_id, at=NOW)


async def test_an_orphan_is_matched_with_who_was_active_when_it_started(
    db: SessionDB, story: Story
) -> None:
    async def one(**options: Any) -> Any:
        (record,) = await db.find_orphaned_gateway_sessions(**options)
        return record

    assert await db.find_orphaned_gateway_sessions() == []
    await donor(story)
    await orphan(story)
    assert await one() == {  # gateway 11.16
        "orphan_id": "orphan",
        "source": "telegram",
        "message_count": 1,
        "started_at": NOW - 950,
        "last_active": NOW,
        "donor_id": "donor",
        "session_key": "k",
        "evidence": "contiguity",
        "adoptable": True,
        "reason": "",
    }
    far = await one(max_gap_s=10)
    assert (far["adoptable"], far["donor_id"], far["evidence"]) == (False, None, "")
    assert "10 s" in far["reason"] and not far["reason"].startswith("ambiguous")
    await orphan(story, "other")
    for record in await db.find_orphaned_gateway_sessions():
        assert (record["adoptable"], record["donor_id"]) == (False, "donor")
        assert record["evidence"] == "contiguity" and record["reason"].startswith("ambiguous")
    await story.raw.execute("UPDATE sessions SET user_id = 'v' WHERE id = 'other'")
    first, second = await db.find_orphaned_gateway_sessions()
    assert (first["adoptable"], second["adoptable"]) == (True, False)
    await donor(story, "donor2", user_id=None, session_key="k2")
    first, second = await db.find_orphaned_gateway_sessions()
    assert first["donor_id"] is None and first["reason"].startswith("ambiguous")
    assert second["donor_id"] == "donor2"
    with pytest.raises(ValueError, match="max_gap_s"):
        await db.find_orphaned_gateway_sessions(max_gap_s=-1)


async def test_orphans_are_found_by_two_statements(
    db: SessionDB, story: Story, sent: Callable[[], int]
) -> None:
    for number in range(5):
        await donor(story, f"d{number}", session_key=f"k{number}", user_id=f"u{number}")
        await orphan(story, f"o{number}", user_id=f"u{number}")
    await db.find_orphaned_gateway_sessions()
    sent()
    records = await db.find_orphaned_gateway_sessions()
    assert sent() == 2
    claims = [(record["orphan_id"], record["donor_id"]) for record in records]
    assert claims == [(f"o{number}", f"d{number}") for number in range(5)]


async def test_what_is_an_orphan_and_what_a_donor(db: SessionDB, story: Story) -> None:
    await donor(story, "parent", profile_name="work")
    await story.new("silent", NOW, **TG)
    await orphan(story, "tool", source="tool")
    await orphan(story, "branch", config={"_branched_from": "parent"})
    await orphan(story, "delegate", config={"_delegate_from": "x"})
    await orphan(story, "b", profile_name="work", session_key="", parent="parent")
    await orphan(story, "c", parent="parent")
    await orphan(story, "d", parent="parent", source="discord", profile_name="work")
    await orphan(story, "e", parent="b", profile_name="work")
    await orphan(story, "f")
    records = {record["orphan_id"]: record for record in await db.find_orphaned_gateway_sessions()}
    assert list(records) == ["b", "c", "d", "e", "f"]
    evidence = {name: record["evidence"] for name, record in records.items()}
    assert evidence == {"b": "lineage", "c": "", "d": "", "e": "", "f": ""}
    assert "parent" in records["c"]["reason"] and "900 s" in records["f"]["reason"]
    db.database.own_profile = "work"
    records = {record["orphan_id"]: record for record in await db.find_orphaned_gateway_sessions()}
    claims = {name: record["donor_id"] for name, record in records.items()}
    assert claims == {"b": "parent", "c": "parent", "d": None, "e": None, "f": "parent"}
    assert not any(record["adoptable"] for record in records.values())


async def test_adoption_makes_one_conversation(db: SessionDB, story: Story, clock: Any) -> None:
    adopt = db.adopt_orphaned_gateway_session
    await donor(story, origin_json="{}", thread_id="t")
    await orphan(story, user_id="", chat_id="own")
    assert await adopt("orphan", "donor") is True  # gateway 11.17
    adopted = await db.get_session("orphan")
    expected = {"session_key": "k", "parent_session_id": "donor", "chat_id": "own"}
    expected |= {"user_id": "u", "thread_id": "t", "origin_json": "{}"}
    assert adopted is not None and {**adopted, **expected} == adopted
    ended = await db.get_session("donor")
    assert ended is not None and ended["end_reason"] == "superseded_by_repair"
    assert ended["ended_at"] == clock.time
    assert await adopt("orphan", "donor") is False
    await orphan(story, "second")
    assert await adopt("second", "donor") is False  # G-23

    for reason in ("compression", "session_reset"):  # G-10
        await donor(story, reason, session_key=reason)
        await story.end(reason, reason, NOW)
        await orphan(story, f"after {reason}")
        assert await adopt(f"after {reason}", reason) is True
        ended = await db.get_session(reason)
        assert ended is not None and (ended["end_reason"], ended["ended_at"]) == (reason, NOW)
    assert await db.get_compression_tip("compression") == "after compression"


async def test_what_does_not_fit_is_not_adopted(db: SessionDB, story: Story) -> None:
    await donor(story)
    await donor(story, "keyless", session_key="")
    cases: dict[str, dict[str, Any]] = {
        "user": {"user_id": "OTHER"},  # G-11
        "source": {"source": "discord"},
        "profile": {"profile_name": "work"},
        "keyed": {"session_key": "k9"},
    }
    for name, columns in cases.items():
        await orphan(story, name, **columns)
    await orphan(story, "ancestor")
    await donor(story, "descendant", session_key="k3", parent="ancestor")
    db.database.own_profile = "default"
    before = await db.search_sessions(limit=None)
    pairs = [*((name, "donor") for name in cases), ("ancestor", "descendant")]
    pairs += [("donor", "donor"), ("unknown", "donor"), ("user", ""), ("ancestor", "keyless")]
    for pair in pairs:
        assert await db.adopt_orphaned_gateway_session(*pair) is False, pair
    assert await db.search_sessions(limit=None) == before
    db.database.own_profile = None
    assert await db.adopt_orphaned_gateway_session("profile", "donor") is True


async def test_a_donor_is_adopted_by_one_of_two(
    db: SessionDB, story: Story, open_store: Callable[..., SessionDB]
) -> None:
    await donor(story)
    names = [f"o{number}" for number in range(6)]
    for name in names:
        await orphan(story, name)
    stores = [db, open_store()] * 3
    results = await asyncio.gather(
        *(
            store.adopt_orphaned_gateway_session(name, "donor")
            for store, name in zip(stores, names, strict=True)
        )
    )
    assert sorted(results) == [False] * 5 + [True]


async def test_a_sweep_ends_what_nobody_runs(db: SessionDB, story: Story, raw: Raw) -> None:
    now = time.time()  # the server's clock, on PostgreSQL
    sources = {
        "t1": "tui",
        "t2": "desktop",
        "t3": "telegram",
        "t4": "tui",
        "t5": "tui",
        "t6": "tui",
    }
    for name, source in sources.items():
        await story.new(name, now - 1000, source=source, pinned=int(name == "t5"))
    await story.new("young", now - 50, source="tui", last_activity_at=now - 1000)
    await story.msg("t4", at=now)

    async def sweep(**options: Any) -> list[str]:
        return await db.sweep_orphaned_sessions(
            **{"max_idle_seconds": 100, "exclude_ids": ["t6"], "exclude_pinned": True, **options}
        )

    async def beat(started_at: float, last: float) -> None:
        await raw.execute("DELETE FROM gateway_heartbeats")
        await story.insert(
            "gateway_heartbeats",
            {"backend_id": "b", "pid": 1, "started_at": started_at, "last_heartbeat": last},
        )

    await beat(now - 2000, now)  # gateway 11.18
    assert await sweep() == []
    await beat(now, now)
    for nothing in ({"max_idle_seconds": 0}, {"max_idle_seconds": -1}, {"sources": ["", None]}):
        assert await sweep(**nothing) == []
    assert await sweep() == ["t1", "t2"]
    ended = await db.get_session("t1")
    assert ended is not None and ended["end_reason"] == "startup_orphan_reap"
    assert abs((ended["ended_at"] or 0) - now) < 60
    assert await db.try_acquire_session_turn_lease("t6", "h", ttl_seconds=60)
    assert await sweep(exclude_ids=()) == []
    await db.release_session_turn_lease("t6", "h")
    assert await db.try_acquire_compression_lock("t6", "h", 60)
    assert await sweep(exclude_ids=()) == []
    await raw.execute("UPDATE compression_locks SET expires_at = ?", now - 1)
    assert await sweep(exclude_ids=(), exclude_pinned=False) == ["t5", "t6"]
    assert await raw.fetch("SELECT count(*) FROM compression_locks") == [(0,)]

    await story.new("s", now - 1000, source="tui")  # gateway 11.19
    await beat(now - 900, now)
    assert await sweep() == []
    await beat(now - 900, now + 3600)  # G-19
    assert await sweep(heartbeat_ownership_grace_seconds=150, max_idle_seconds=10_000) == []
    await beat(now - 900, now)
    assert await sweep(heartbeat_ownership_grace_seconds=0) == ["s"]
    for last in (now - 500, now + 3600):
        await db.reopen_session("s")
        await beat(now - 900, last)
        assert await sweep() == ["s"]
    await db.reopen_session("s")
    await beat(now - 900, now - 500)
    assert await sweep(heartbeat_staleness_seconds=600) == []
    assert await sweep(respect_gateway_heartbeats=False, heartbeat_staleness_seconds=600) == ["s"]
    assert await db.latest_conversation_boundary("k", "tui") is None


async def test_a_sweep_looks_at_whole_conversations(db: SessionDB, story: Story, raw: Raw) -> None:
    now = time.time()
    for root, tip in (("pinned", "p-tip"), ("leased", "l-tip"), ("over", "o-tip")):
        await story.new(root, now - 2000, source="tui", pinned=int(root == "pinned"))
        await story.end(root, "compression", now - 1500)
        await story.new(tip, now - 1500, source="tui", parent=root)
    assert await db.try_acquire_session_turn_lease("l-tip", "h", ttl_seconds=60)
    assert await db.try_acquire_session_turn_lease("o-tip", "h", ttl_seconds=60)
    await raw.execute(
        "UPDATE session_turn_leases SET expires_at = ? WHERE conversation_id = 'over'", now - 1
    )
    assert await db.sweep_orphaned_sessions(max_idle_seconds=100, exclude_pinned=True) == ["o-tip"]
    leases = await raw.fetch("SELECT conversation_id FROM session_turn_leases")
    assert leases == [("leased",)]
    assert await db.refresh_session_turn_lease("o-tip", "h") is False

    # What was swept ages from the sweep.
    swept: dict[str, Any] = {"last_active_before": now - 1000, "end_reason": "startup_orphan_reap"}
    assert await db.list_prune_candidates(**swept) == []
    await raw.execute("UPDATE sessions SET ended_at = ? WHERE id = 'o-tip'", now - 1001)
    candidates = await db.list_prune_candidates(**swept)
    assert [row["id"] for row in candidates] == ["o-tip"]


async def test_two_sweeps_share_the_sessions(
    db: SessionDB, story: Story, open_store: Callable[..., SessionDB]
) -> None:
    started = time.time() - 1000
    names = [f"s{number:02}" for number in range(40)]
    rows = [{"id": name, "source": "tui", "started_at": started} for name in names]
    await story.insert("sessions", *rows)
    stores = (db, open_store())
    swept = await asyncio.gather(*(s.sweep_orphaned_sessions(max_idle_seconds=9) for s in stores))
    assert sorted([*swept[0], *swept[1]]) == names


async def test_what_only_a_runtime_left_is_brought_back(db: SessionDB, story: Story) -> None:
    async def state(session_id: str) -> tuple[Any, ...]:
        row = await db.get_session(session_id)
        assert row is not None
        return row["archived"], row["end_reason"], row["ended_at"]

    await db.create_session("a", "tui")
    await db.end_session("a", "ws_orphan_reap")
    assert await db.unarchive_recoverable_session("a") is False
    await db.set_session_archived("a", True)
    assert await db.unarchive_recoverable_session("a") is True  # gateway 11.20
    assert await state("a") == (0, None, None)
    assert await db.unarchive_recoverable_session("a") is False
    await db.set_session_archived("a", True)
    assert await db.unarchive_recoverable_session("a") is False
    await db.end_session("a", "tui_shutdown")
    assert await db.unarchive_recoverable_session("a") is False
    assert await db.unarchive_recoverable_session("unknown") is False

    await story.new("r", 1)
    await story.end("r", "compression", 2)
    await story.new("t", 2, parent="r")
    await story.end("t", "agent_close", 3)
    await db.set_session_archived("t", True)
    assert await db.unarchive_recoverable_session("r") is True
    assert await state("r") == (0, "compression", 2)
    assert await state("t") == (0, None, None)
