"""Arguments of `search_messages`: what is accepted, what is refused, and before what."""

from collections.abc import Iterator
from typing import Any

import pytest

from hermes_orm import SessionDB
from tests.contract.finding import found, found_set, tell_corpus
from tests.raw import Raw

WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"query": 5}, TypeError, "query"),
    ({"query": b"docker"}, TypeError, "query"),
    ({"source_filter": "cli"}, TypeError, "source_filter"),
    ({"source_filter": [1]}, TypeError, "source_filter"),
    ({"exclude_sources": "cli"}, TypeError, "exclude_sources"),
    ({"role_filter": "user"}, TypeError, "role_filter"),
    ({"limit": "20"}, TypeError, "limit"),
    ({"limit": 2.0}, TypeError, "limit"),
    ({"offset": None}, TypeError, "offset"),
    ({"fields": "id"}, TypeError, "fields"),
    ({"fields": ["id", "zz", "aa"]}, ValueError, "aa, zz"),
    ({"fields": [None]}, ValueError, "None"),
]


async def test_wrong_arguments_are_refused_whatever_the_query(db: SessionDB) -> None:
    for wrong, error, named in WRONG:
        for query in ("docker", "", None):
            with pytest.raises(error, match=named):
                await db.search_messages(**{"query": query, **wrong})
    with pytest.raises(TypeError, match="query"):
        await db.search_messages(5, source_filter=[])  # type: ignore[arg-type]


async def test_queries_that_look_for_nothing_find_nothing(db: SessionDB) -> None:
    await db.create_session("s", "cli")
    await db.append_message("s", "user", "AND 🚀 \0 *** and")
    for query in (None, "", "   ", "AND", "***", "🚀", "launch AND 🚀", "\0", '""'):
        assert await db.search_messages(query, limit=None) == []


async def test_limits_offsets_and_orders(db: SessionDB, raw: Raw) -> None:
    await tell_corpus(db, raw)
    everything = [1, 2, 17, 18, 19]
    for limit in (None, -1, -99, 2**70, True + 4):
        assert await found_set(db, "docker", limit=limit) == everything
    assert await found(db, "docker", limit=0) == []
    assert await found_set(db, "docker", offset=-3) == everything
    assert await found(db, "docker", offset=2**70) == []
    assert await found(db, "docker", sort="OLDEST ", offset=3) == [18, 19]
    assert await found(db, "docker", sort="oldest", limit=None, offset=4) == [19]
    by_relevance = await found(db, "docker")
    for sort in ("bogus", "", 1, ["newest"]):
        assert await found(db, "docker", sort=sort) == by_relevance


async def test_collections_of_any_kind_filter(db: SessionDB, raw: Raw) -> None:
    await tell_corpus(db, raw)

    def generated() -> Iterator[str]:
        yield from ("cli", "telegram")

    for sources in (["cli", "telegram"], ("cli", "telegram"), {"cli", "telegram"}, generated()):
        assert await found_set(db, "docker", source_filter=sources) == [1, 2, 19]
    assert await found_set(db, "docker", source_filter=["cli", "a\0b", "\ud800"]) == [1, 2, 19]
    assert await found_set(db, "docker", source_filter=["a\0b"]) == []
    assert await found_set(db, "docker", role_filter=("user",), exclude_sources={"cli"}) == [17]
    assert await found_set(db, "docker", source_filter=["cli"], exclude_sources=["cli"]) == []
    assert await found_set(db, "docker", role_filter=["nobody"]) == []


async def test_fields_choose_keys_in_their_canonical_order(db: Any, raw: Raw) -> None:
    await tell_corpus(db, raw)
    (hit,) = await db.search_messages("docker", fields=("snippet", "id"), limit=1)
    assert list(hit) == ["id", "snippet"]
    (hit,) = await db.search_messages("docker", limit=1)
    assert list(hit) == [
        *("id", "session_id", "role", "snippet", "timestamp"),
        *("tool_name", "source", "model", "session_started", "context"),
    ]
    for key in hit:
        (part,) = await db.search_messages("docker", fields=[key], limit=1)
        assert part == {key: hit[key]}
    for query, number in (("docker", 5), ("旅行", 2)):
        assert await db.search_messages(query, fields=[]) == [{}] * number


async def test_a_closed_store_searches_no_more(db: SessionDB) -> None:
    await db.close()
    for query in ("docker", ""):
        with pytest.raises(RuntimeError, match="closed"):
            await db.search_messages(query)
