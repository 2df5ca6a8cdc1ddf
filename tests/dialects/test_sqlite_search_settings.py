"""Settings that change which search indexes a file has, and when they are filled."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes_orm import SessionDB, database
from hermes_orm.services import indexing
from tests.contract.finding import found, found_set
from tests.contract.index_states import Index
from tests.raw import Raw

Open = Callable[..., SessionDB]
Configure = Callable[[str], None]
INDEXED = "SELECT count(*) FROM messages_fts_docsize"
MARKS = "SELECT key, value FROM state_meta WHERE key LIKE 'fts_%' ORDER BY key"
TRIGRAMS = "SELECT name FROM sqlite_master WHERE name LIKE 'messages_fts_trigram%'"


@pytest.fixture
def location(make_location: Callable[..., str]) -> str:
    return make_location("sqlite")


@pytest.fixture
def index(raw: Raw) -> Index:
    return Index(raw)


@pytest.fixture
def configure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Configure:
    """`configure(text)`: what config.yaml says to stores that are opened from now on."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HERMES_HOME", str(home))

    def configure(text: str) -> None:
        (home / "config.yaml").write_text(text)

    return configure


async def tell(db: SessionDB, *texts: str) -> None:
    for text in texts:
        await db.append_message("s", "user", text)


async def test_deferred_appends_are_found_and_indexed_later(
    configure: Configure,
    open_store: Open,
    raw: Raw,
    index: Index,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(database, "FOLLOW_SECONDS", 60)
    configure("database: {sqlite: {search_indexing: deferred}}")
    db = open_store()
    await db.create_session("s", "cli")
    await tell(db, "red garden", "green garden 温室传感器", "blue house")
    assert await raw.fetch(INDEXED) == [(0,)]
    assert await found(db, "garden", sort="oldest") == [1, 2]
    assert await found(db, "传感器") == await found(db, "室传") == [2]
    assert await found_set(db, "arde") == [1, 2]
    assert await found_set(db, "garden NOT red") == [2]
    status = {"pending": True, "total": 3, "indexed": 0, "percent": 0}
    assert await db.fts_rebuild_status() == status
    assert await db.delete_session("s") is not None
    await db.create_session("s", "cli")
    await tell(db, "pink garden", "white garden")
    assert await db.fts_optimize_available()
    assert not await db.fts_rebuild_step()
    assert await db.fts_rebuild_status() is None
    assert await raw.fetch(INDEXED) == [(2,)]
    assert (await db.optimize_fts_storage(vacuum=False))["ok"]
    await tell(db, "yellow garden")
    assert await raw.fetch(INDEXED) == [(2,)], "they are still left to steps"
    assert await found_set(db, "garden") == [4, 5, 6]
    await db.close()
    rebuild = [("fts_rebuild_high_water", "6"), ("fts_rebuild_progress", "5")]
    assert [row for row in await raw.fetch(MARKS) if "rebuild" in row[0]] == rebuild
    configure("")
    live = open_store()
    await tell(live, "brown garden")
    assert await found_set(live, "garden") == [4, 5, 6, 7]
    assert not await live.fts_rebuild_step()
    assert await live.fts_rebuild_status() is None
    await index.check(4)


async def test_an_open_store_indexes_what_it_has_deferred(
    configure: Configure,
    open_store: Open,
    raw: Raw,
    index: Index,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(database, "FOLLOW_SECONDS", 0)
    monkeypatch.setattr(indexing, "LEAST_PAUSE_SECONDS", 0.01)
    configure("database: {sqlite: {search_indexing: deferred}}")
    db = open_store()
    await db.create_session("s", "cli")
    for n in range(3):
        await tell(db, f"garden {n}", f"house {n}")
        while await db.fts_rebuild_status() is not None:
            await asyncio.sleep(0.01)
        assert await raw.fetch(INDEXED) == [(2 * n + 2,)]
    assert await db.rebuild_fts() == 2
    while not any(key == "fts_rebuild_progress" for key, _ in await raw.fetch(MARKS)):
        await asyncio.sleep(0.01)
    await db.close()
    assert await raw.fetch(MARKS) == []
    await index.check(6)


async def test_without_trigrams_substrings_are_found_by_scan(
    configure: Configure, open_store: Open, raw: Raw, index: Index
) -> None:
    await open_store().create_session("s", "cli")
    configure("sessions: {trigram_fts: false}")
    db = open_store()
    await tell(db, "red garden 温室传感器")
    assert await raw.fetch(TRIGRAMS) == []
    assert await found(db, "arde") == await found(db, "传感器") == await found(db, "garden") == [1]
    assert await db.optimize_fts() == await db.rebuild_fts() == 1
    assert not await db.fts_optimize_available()
    assert ("fts_trigram_stale", "1") in await raw.fetch(MARKS)
    await db.close()
    configure("")
    again = open_store()
    assert await found(again, "arde") == [1]
    assert await raw.fetch(MARKS) == []
    await index.check(1)


async def test_a_trigram_index_that_is_not_wanted_any_more_goes(
    configure: Configure, open_store: Open, raw: Raw
) -> None:
    db = open_store()
    await db.create_session("s", "cli")
    await tell(db, "red garden")
    await db.close()
    configure("sessions: {trigram_fts: false}")
    db = open_store()
    await tell(db, "green garden")
    assert await found_set(db, "arde") == [1, 2]
    assert (await raw.fetch("SELECT count(*) FROM messages_fts_trigram_docsize")) == [(1,)]
    assert await db.fts_optimize_available()
    assert await db.optimize_fts_storage() == {"ok": True, "vacuumed": True}
    assert await raw.fetch(TRIGRAMS) == []
    assert not await db.fts_optimize_available()
    assert await found_set(db, "arde") == [1, 2]


async def test_an_index_that_a_search_cannot_use_is_replaced(
    open_store: Open, raw: Raw, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexing, "PAUSE_PER_STEP", 0)
    monkeypatch.setattr(indexing, "LEAST_PAUSE_SECONDS", 0)
    db = open_store()
    await db.create_session("s", "cli")
    await tell(db, "red garden", "green garden", "blue house")
    await raw.execute("DELETE FROM messages_fts_data")
    assert await found_set(db, "garden") == [1, 2]
    assert await found_set(db, "garden") == [1, 2]
    while await db.fts_optimize_available():
        await asyncio.sleep(0.01)
    await index.check(3)
    assert await found_set(db, "garden") == [1, 2]
