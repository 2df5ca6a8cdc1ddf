"""Relevance on PostgreSQL: BM25 for few rows, a cheaper measure for many."""

from hermes_orm import SessionDB
from hermes_orm.dialects.postgresql import ranking
from hermes_orm.dialects.postgresql.search import MOST_UNITS_SCORED
from tests.contract.finding import found
from tests.raw import Raw


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
