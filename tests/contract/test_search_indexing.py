"""The search index is rebuilt in steps, while everything is found."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from hermes_orm import SessionDB, database
from hermes_orm.repositories.search import indexing
from hermes_orm.rows import StorageProgress
from tests.contract.finding import found, found_set
from tests.contract.index_states import Index
from tests.raw import Raw


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but the steps of a test indexes anything."""
    monkeypatch.setattr(database, "FOLLOW_SECONDS", 600)


async def needles(db: SessionDB, index: Index) -> None:
    """Corpus C: ten messages of which the index holds 1 to 4, 9 and 10."""
    for session_id, source in (("s1", "cli"), ("s2", "cron")):
        await db.create_session(session_id, source)
    for n in range(1, 11):
        text = "needles foo7 baz" if n == 7 else f"needle foo{n} bar"
        await db.append_message("s1" if n % 2 else "s2", "user", text, timestamp=100.0 - n)
    await index.lose(range(5, 9), high_water=8, progress=4)


async def test_the_gap_of_a_rebuild_is_searched_by_scan(db: SessionDB, index: Index) -> None:
    await needles(db, index)  # search 13.6
    pending = {"pending": True, "total": 8, "indexed": 4, "percent": 50}
    assert await db.fts_rebuild_status() == pending
    assert await db.fts_optimize_available()
    assert await found_set(db, "needle") == list(range(1, 11))
    assert (await found(db, "needle"))[6:] == [5, 6, 7, 8]
    assert await found(db, "needle", limit=3) == [1, 2, 3]
    assert await found(db, "needle", sort="oldest") == list(range(10, 0, -1))
    assert await found(db, "needle", sort="newest", limit=4, offset=3) == [4, 5, 6, 7]
    pages = [await found(db, "needle", limit=3, offset=start) for start in (0, 3, 6, 9, 12)]
    assert sorted(itertools.chain(*pages)) == list(range(1, 11))
    assert await found(db, '"needle foo5"') == [5]
    assert await found_set(db, "needle NOT foo5") == [1, 2, 3, 4, 6, 7, 8, 9, 10]
    assert await found_set(db, "foo5 OR foo6") == [5, 6]
    assert await found_set(db, "needle", source_filter=["cron"]) == [2, 4, 6, 8, 10]
    assert (await db.search_messages("foo5"))[0]["snippet"] == "needle >>>foo5<<< bar"


async def test_steps_end_a_rebuild(
    db: SessionDB, index: Index, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    await needles(db, index)
    monkeypatch.setattr(indexing, "STEP_IDS", 2)
    await index.change(6, "needle updated6")
    await index.change(2, "needle updated2")
    assert await found(db, "updated2") == [2]
    assert await db.fts_rebuild_step() is True
    status = await db.fts_rebuild_status()
    assert status and status["percent"] == 75
    assert await db.fts_rebuild_step() is False
    assert await db.fts_rebuild_status() is None
    assert await db.fts_rebuild_step() is False
    assert await raw.fetch("SELECT key FROM state_meta WHERE key LIKE 'fts_%'") == []
    assert await found(db, "updated6") == [6]
    assert await found(db, "foo6") == []
    await index.check(10)


async def test_the_storage_is_brought_into_order_in_the_foreground(
    db: SessionDB, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    await needles(db, index)
    monkeypatch.setattr(indexing, "STEP_IDS", 2)
    seen: list[tuple[str, int, int, int]] = []

    def progress(event: StorageProgress) -> None:
        seen.append((event["phase"], event["percent"], event["indexed"], event["total"]))

    result = await db.optimize_fts_storage(progress_cb=progress)
    assert result == {"ok": True, "vacuumed": True}
    settled = [(phase, 100, 0, 0) for phase in ("backfill", "teardown", "vacuum", "done")]
    assert seen == [("backfill", 50, 4, 8), ("backfill", 75, 6, 8), *settled]
    seen.clear()
    assert await db.optimize_fts_storage(progress_cb=progress, vacuum=False) == {
        "ok": True,
        "vacuumed": None,
    }
    assert [event[0] for event in seen] == ["backfill", "backfill", "teardown", "done"]
    assert not await db.fts_optimize_available()
    await index.check(10)


async def test_an_index_that_lost_everything_is_filled_again(
    db: SessionDB, index: Index, raw: Raw
) -> None:
    await needles(db, index)
    await index.lose([1, 2, 3, 4, 9, 10], high_water=8)  # and where it was
    assert await db.fts_optimize_available()
    assert (await db.optimize_fts_storage(vacuum=False))["ok"]
    await index.check(10)
    await index.defer("nonsense", "7")
    assert await db.fts_rebuild_status() is None
    assert not await db.fts_rebuild_step()
    await index.defer(0, 0)  # S16: it would never end
    assert not await db.fts_rebuild_step()
    assert await raw.fetch("SELECT key FROM state_meta WHERE key LIKE 'fts_rebuild%'") == []


async def test_a_rebuild_at_once_ends_a_rebuild_in_steps(
    db: SessionDB, index: Index, open_store: Callable[..., SessionDB]
) -> None:
    await needles(db, index)  # S16
    reader = open_store(read_only=True)
    assert await reader.fts_rebuild_status() is not None
    assert not await reader.fts_rebuild_step()
    assert not await reader.fts_optimize_available()
    assert await reader.optimize_fts() == await reader.rebuild_fts() == 0
    assert await reader.optimize_fts_storage() == {"ok": False, "reason": "read_only"}
    assert await found_set(reader, "needle NOT foo5") == [1, 2, 3, 4, 6, 7, 8, 9, 10]
    assert await db.rebuild_fts() >= 1
    while await db.fts_rebuild_step():
        pass
    await index.check(10)
    assert await db.optimize_fts() >= 1
    assert await db.fts_cjk_rebuild_status() is None
    assert not await db.fts_cjk_rebuild_step()


async def test_structured_and_cjk_messages_of_the_gap_are_found(
    db: SessionDB, index: Index, session: str, open_store: Callable[..., SessionDB]
) -> None:
    parts = [
        {"type": "text", "text": 'a "quoted" 温室传感器\ttab'},
        {"type": "image_url", "u": "x"},
    ]
    await db.append_message(session, "user", parts)
    await db.append_message(session, "user", "温室 plain")
    await db.append_message(session, "tool", "温室 of a tool", tool_name="greenhouse")
    await db.append_message(session, "user", parts)
    before = [await db.search_messages(query, **filters) for query, filters in GAP_QUERIES]
    await index.lose([1, 2, 3], high_water=3, progress=0)
    reopened = open_store()
    for (query, filters), hits in zip(GAP_QUERIES, before, strict=True):
        assert await reopened.search_messages(query, **filters) == hits, query
        assert await reopened.search_messages(query, limit=1, offset=1, **filters) == hits[1:2]


GAP_QUERIES: list[tuple[str, dict[str, Any]]] = [
    (query, {"sort": "newest", "role_filter": roles})
    for query, roles in (
        ("quoted", None),
        ('"quoted"', None),
        ("image_url", None),
        ("温室传感", None),
        ("温室", None),
        ("温", None),
        ("传感器 NOT plain", None),
        ("uote", None),
        ("温室", ["tool"]),
        ("温室", ["tool", "user"]),
        ("greenhouse", ["tool"]),
    )
]
