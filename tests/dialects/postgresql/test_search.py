"""Search on PostgreSQL: its relevance, and the entries that it is made of."""

import hashlib
from collections.abc import Callable

import pytest

from hermes_orm import SessionDB
from hermes_orm.dialects.postgresql import ranking
from hermes_orm.dialects.postgresql.search import MOST_UNITS_SCORED
from hermes_orm.search.vector import TOKENIZER_VERSION, tsvector_text
from tests.contract.finding import found
from tests.contract.index_states import Index
from tests.raw import Raw
from tests.search.corpora import CORPUS, columns


@pytest.fixture
def index(raw: Raw) -> Index:
    return Index(raw)


async def test_shorter_and_more_frequent_and_rarer_is_more_relevant(db: SessionDB) -> None:
    await db.create_session("s", "cli")
    for text in (
        "common common filler filler filler filler",
        "common filler filler filler filler filler",
        "common filler",
        "rare filler filler filler filler filler",
        "red rose filler filler filler filler",
        "red rose red rose filler filler",
        "red filler filler filler rose filler",
        "café",
    ):
        await db.append_message("s", "user", text)
    assert await found(db, "common") == [3, 1, 2]
    assert (await found(db, "common OR rare"))[0] == 4
    assert await found(db, '"red rose"') == [6, 5]
    assert await found(db, "comm* NOT rare") == [3, 1, 2]
    assert await found(db, "cafe OR absent") == [8]


async def test_many_hits_and_many_words_are_ranked_too(db: SessionDB, raw: Raw) -> None:
    await db.create_session("s", "cli")
    many = ranking.MOST_SCORED + 100
    await raw.execute(
        "INSERT INTO messages (session_id, role, content, timestamp) "
        "SELECT 's', 'user', repeat('filler ', 1 + n % 3) || 'needle', n "
        f"FROM generate_series(1, {many}) AS n"
    )
    await raw.execute(
        "INSERT INTO message_search (message_id, vec, doc_len) "
        "SELECT id, to_tsvector('simple', content), 3 FROM messages"
    )
    assert await found(db, "needle", limit=3) == [3, 6, 9]
    assert len(await found(db, "needle", limit=None, fields=["id"])) == many
    assert await found(db, "needle", limit=1, offset=many) == []
    words = [f"absent{n}" for n in range(MOST_UNITS_SCORED)]
    assert await found(db, " OR ".join([*words, "needle"]), limit=2) == [3, 6]


async def test_pairs_of_cjk_characters_need_no_look_at_texts(db: SessionDB, raw: Raw) -> None:
    await db.create_session("s", "cli")
    for text in ("数据库连接", "数据，库连", "连接数据"):
        await db.append_message("s", "user", text)
    await raw.execute("UPDATE messages SET content = '?'")
    assert await found(db, "数据") == [3, 2, 1]
    assert await found(db, "数据 NOT 连接") == [2]
    assert await found(db, "库连 OR 接数", sort="oldest") == [1, 2, 3]


async def test_entries_of_another_tokenizer_are_made_anew(
    db: SessionDB, raw: Raw, open_store: Callable[..., SessionDB], index: Index
) -> None:
    await db.create_session("s", "cli")
    await db.append_message("s", "user", "red garden")
    await raw.execute("INSERT INTO state_meta VALUES ('search_tokenizer_version', '0')")
    await raw.execute("UPDATE message_search SET vec = 'rouge'")
    store = open_store()
    assert await store.fts_optimize_available()
    assert (await store.optimize_fts_storage(vacuum=False))["ok"]
    assert await found(store, "garden") == [1]
    assert not await store.fts_optimize_available()
    await index.check(1)


def test_a_change_of_tokens_needs_a_new_version() -> None:
    entries = repr([tsvector_text(*columns(row), row["role"]) for row in CORPUS["messages"]])
    digest = hashlib.sha256(entries.encode()).hexdigest()[:12]
    assert (TOKENIZER_VERSION, digest) == (1, "0fd570c6ec77"), (
        "entries have changed: raise TOKENIZER_VERSION"
    )
