"""The search index is rebuilt in steps, while everything is found."""

import itertools

import pytest

from hermes_orm import SessionDB
from hermes_orm.repositories.search import indexing
from tests.contract.finding import found, found_set
from tests.contract.index_states import Index
from tests.raw import Raw


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
