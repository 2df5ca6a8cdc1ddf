"""No query raises, no query waits for another, and no hit costs a statement of its own."""

import asyncio
import logging
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes_orm import SessionDB
from tests.contract.conftest import Sent
from tests.contract.finding import found, found_set, tell_corpus
from tests.raw import Raw

SIGNS = "aANDORT '\"*.-%^:+(){}\\~\0\ud800中数。　🚀🤖éß"
WORDS = [f"w{number}" for number in range(12_000)]
SIGNS_OF_CJK = [chr(0x4E00 + number) for number in range(12_000)]
LONG = [
    "x" * 60_000,
    f'"{"x" * 60_000}"',
    " ".join(WORDS),
    " OR ".join(WORDS),
    " NOT ".join(WORDS),
    "a b AND c OR d NOT e* " * 3_000,
    "".join(SIGNS_OF_CJK * 5),
    " ".join(SIGNS_OF_CJK * 2),
    " OR ".join(f"{sign}一" for sign in SIGNS_OF_CJK),
    " é ".join(f"{sign} NOT {sign}二" for sign in SIGNS_OF_CJK),
    "界" * 800 + "*",
]


async def test_no_query_raises(db: SessionDB, raw: Raw) -> None:
    await tell_corpus(db, raw)
    chance = random.Random(7)
    odd = ["".join(chance.choices(SIGNS, k=chance.randrange(1, 30))) for _ in range(120)]
    for query in [*LONG, *odd]:
        await db.search_messages(query)
        await db.search_messages(query, role_filter=["tool"], sort="oldest", fields=["id"])


async def test_a_query_of_the_greatest_length_means_what_it_says(db: SessionDB) -> None:
    await db.create_session("s", "cli")
    present = [chr(0xAC00 + number) for number in range(900)]
    absent = SIGNS_OF_CJK[2_000:2_300]
    await db.append_message("s", "user", "数据库 and 一二三" + "".join(present))
    await db.append_message("s", "user", "数据库" + "".join(present))
    for query, ids in [
        (" OR ".join(absent) + " OR 库", [1, 2]),
        (" OR ".join(absent), []),
        ("库 NOT " + " NOT ".join(absent) + " NOT 二", [2]),
        (" ".join(present) + " AND 数", [1, 2]),
        (" ".join(present) + " 一", [1]),
    ]:
        assert await found_set(db, query) == ids


async def test_odd_texts_are_found_by_their_words(db: SessionDB) -> None:
    await db.create_session("s", "cli")
    for text in ("before\0after", "lone \ud800 surrogate", "\x01json: text", "\0json:[broken"):
        await db.append_message("s", "user", text)
    for query, ids in (("after", [1]), ("surrogate", [2]), ("json text", [3]), ("broken", [4])):
        assert await found(db, query) == ids, query
    assert (await db.search_messages("lone"))[0]["snippet"] == ">>>lone<<< \ufffd surrogate"


async def test_searches_run_beside_each_other_and_beside_appends(
    db: SessionDB, raw: Raw, open_store: Callable[..., SessionDB]
) -> None:
    await tell_corpus(db, raw)
    searches = asyncio.gather(*(found(db, query) for query in ("docker", "旅行", "catenate") * 5))
    await asyncio.gather(*(db.append_message("s1", "user", f"later docker {n}") for n in range(10)))
    assert {1, 2, 17, 18, 19} <= set((await searches)[0])
    assert len(await found(open_store(read_only=True), "docker")) == 15


@pytest.mark.parametrize("query", ["docker", "旅行", "连"])
async def test_a_search_sends_the_same_statements_for_any_number_of_hits(
    db: SessionDB, raw: Raw, sent: Sent, query: str
) -> None:
    await tell_corpus(db, raw)
    await db.search_messages(query)  # a store asks once whether something is left to be indexed
    numbers = []
    for limit in (1, None):
        sent()
        await db.search_messages(query, limit=limit)
        numbers.append(sent())
    assert numbers[0] == numbers[1] <= 2
    await db.search_messages("***")
    assert sent() == 0


async def test_slow_searches_are_logged(
    db: SessionDB,
    raw: Raw,
    open_store: Callable[..., SessionDB],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    def lines() -> list[str]:
        logged = [r.getMessage() for r in caplog.records if r.name == "hermes_orm.search"]
        caplog.clear()
        return logged

    caplog.set_level(logging.INFO, "hermes_orm.search")
    await tell_corpus(db, raw)
    await db.search_messages("docker")
    assert not lines()
    monkeypatch.setenv("HERMES_SEARCH_SLOW_MS", "0")
    monkeypatch.setenv("HERMES_HOME", str(tmp_path / "another"))
    every = open_store()
    for query, routes, rows in [
        ("docker " + "x" * 300, {"like_scan", "trigram"}, 0),
        ("docker", {"fts5"}, 5),
        ("***", {"empty"}, 0),
        ("数据库", {"fts_cjk", "trigram"}, 1),
        ("连", {"like_scan"}, 1),
    ]:
        assert len(await every.search_messages(query)) == rows
        (line,) = lines()
        assert any(f"route={route} " in line for route in routes)
        assert f"rows={rows} " in line
        assert len(line) < 300
    await every.close()
    with pytest.raises(RuntimeError):
        await every.search_messages("docker")
    (line,) = lines()
    assert "rows=err" in line
