"""Search while an index is missing, stale or damaged: by scan, with hits of the same shape."""

import logging
from collections.abc import Callable

import pytest

from hermes_orm import SessionDB
from hermes_orm.repositories.search.search import _warn_of_damage
from tests.contract.finding import found, found_set, tell_corpus
from tests.raw import Raw
from tests.search.corpora import CORPUS

Open = Callable[..., SessionDB]


@pytest.fixture
def location(make_location: Callable[..., str]) -> str:
    return make_location("sqlite")


async def drop_index(raw: Raw, name: str) -> None:
    """Do what a program does whose SQLite lacks the index."""
    for event in ("insert", "delete", "update"):
        await raw.execute(f"DROP TRIGGER {name}_{event}")
    await raw.execute(f"DROP TABLE {name}")


async def test_every_example_is_found_without_trigrams(db: SessionDB, raw: Raw) -> None:
    await tell_corpus(db, raw)
    await drop_index(raw, "messages_fts_trigram")
    for example in CORPUS["queries"]:
        hits = await found_set(db, example["query"], **example["arguments"])
        assert hits == sorted(example["hits"]), example


@pytest.mark.parametrize("read_only", [False, True])
async def test_words_are_found_without_full_text_search(
    db: SessionDB, raw: Raw, open_store: Open, read_only: bool
) -> None:
    await tell_corpus(db, raw)
    (whole,) = await db.search_messages("catenate")
    db.database.dialect.indexing.was_repaired = True
    await drop_index(raw, "messages_fts_trigram")
    await drop_index(raw, "messages_fts")
    store = open_store(read_only=True) if read_only else db
    assert await found(store, "docker") == [19, 18, 17, 2, 1]
    assert await found(store, "docker", sort="oldest", limit=2, offset=1) == [2, 17]
    assert await found(store, "docker NOT deployment") == [19, 18, 1]
    assert await found(store, "KUBECTL") == [3]
    assert await found(store, "terminal", role_filter=["tool"]) == [4]
    assert await found(store, "zebra") == [22]
    assert await store.search_messages("catenate") == [whole]
    (hit,) = map(dict, await store.search_messages("docker", fields=["id"], limit=1))
    assert hit == {"id": 19}


async def test_a_stale_index_is_not_asked(
    db: SessionDB, raw: Raw, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_SEARCH_SLOW_MS", "0")
    await tell_corpus(db, raw)
    await raw.execute("INSERT INTO messages_fts (messages_fts) VALUES ('delete-all')")
    assert await found(db, "kubectl") == []
    caplog.set_level(logging.INFO, "hermes_orm.search")
    for mark, ids in (("fts_trigram_stale", []), ("fts_stale", [3])):
        await raw.execute("INSERT INTO state_meta VALUES (?, '1')", mark)
        caplog.clear()
        assert await found(db, "kubectl") == ids
        assert "route=like_scan_fts_stale " in caplog.records[-1].getMessage()


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE {}_data SET block = x'ff' WHERE id > 10",
        "DELETE FROM {}_data WHERE id > 10",
        "DELETE FROM {}_data",
        "DELETE FROM {}_docsize",
        "DELETE FROM {}_config",
    ],
)
async def test_a_damaged_index_is_no_error(
    db: SessionDB, raw: Raw, open_store: Open, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    _warn_of_damage.cache_clear()
    await tell_corpus(db, raw)
    for name in ("messages_fts", "messages_fts_trigram"):
        await raw.execute(damage.format(name))
    store = open_store()
    for query, ids in (("docker", [1, 2, 17, 18, 19]), ("数据库", [11]), ("catenate", [23])):
        assert await found_set(store, query) == ids
        assert await found_set(store, query, fields=["id"], limit=None) == ids
    hit = (await store.search_messages("数据库连接"))[0]
    assert hit["snippet"] == "错误日志：>>>数据库连接<<<超时"
    assert len(hit["context"]) == 3
    warnings = [record for record in caplog.records if "cannot be used" in record.message]
    assert 1 <= len(warnings) <= 2


async def test_ties_of_relevance_come_in_the_order_of_ids_in_large_results(
    db: SessionDB, raw: Raw
) -> None:
    """FTS5 sorts by rank alone; the order among equals is what this relies on."""
    await db.create_session("s", "cli")
    await raw.execute(
        "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 30000) "
        "INSERT INTO messages (session_id, role, content, timestamp) "
        "SELECT 's', 'user', iif(n % 3, 'needle one', 'needle'), 0 FROM n"
    )
    ids = await found(db, "needle", limit=None, fields=["id"])
    shorter, longer = range(3, 30001, 3), [n for n in range(1, 30001) if n % 3]
    assert ids == [*shorter, *longer]
