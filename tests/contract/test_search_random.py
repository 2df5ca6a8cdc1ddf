"""Random queries over random multilingual messages find on both databases what they mean."""

from collections.abc import Callable
from itertools import groupby
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from hermes_orm import SessionDB
from hermes_orm.dialects import Transaction
from hermes_orm.models import Message
from hermes_orm.search.query import Node, parse
from hermes_orm.search.text import search_columns
from tests.contract.pairs import empty, two_stores
from tests.postgres_server import PostgresServer
from tests.search.evaluation import matches_substrings, matches_words

QUERIES = 100
"""Asked of one corpus, which takes longer to write than to search."""

SESSIONS: dict[str, dict[str, Any]] = {
    "main": {"source": "cli"},
    "branch": {"source": "telegram", "parent_session_id": "main"},
    "job": {"source": "cron"},
    "kid": {
        "source": "telegram",
        "parent_session_id": "main",
        "model_config": {"_delegate_from": "main"},
    },
}
UNCOVERED = {"job", "kid"}

# Letters outside of ASCII that have a case stay out: substring search tolerates differences there.
WORDS = (
    *("docker", "dock", "Docker", "DOCKER", "foo_bar", "x-1", "a", "the", "and", "or", "42"),
    *("3.14", "don't", "/etc/nginx.conf", "user@example.com", "100%", "c++", "\\", "_", "%"),
    *("数据库", "据库连", "数", "数据库docker", "。数据", "数据库，连接", "廣西", "𠀀𠀁", "﨎"),
    *("東京タワー", "カタカナ", "ｶﾀｶﾅ", "ひらがな", "일본", "일본 여행", "ᄒ", "：", "ー"),
    *("नमस्ते", "हिन्दी", "مرحبا", "שלום", "สวัสดี", "ß", "½", "²", "a\u0301b", "e\u0301", "x\u00adx"),
    *("🚀", "🤖", "👩‍💻", "\t", "\0", "\u200b", "\u3000"),
)
OPERATORS = ("AND", "OR", "NOT", "OR NOT", "and", "not", "AND AND")
PARTS = (
    *(
        "dock*",
        "नम*",
        "数据*",
        "ocke",
        "oo_b",
        "库",
        "タワ",
        "본",
        "वस",
        "据库 OR 일",
        "#a",
        "?",
        '"',
    ),
    *('"docker foo"', '"数据库 the"', '"foo bar"*', '""', '"库 连"', "docker-", "*", "(a OR b)"),
)

texts = st.lists(
    st.tuples(st.sampled_from(WORDS), st.sampled_from((" ", " ", "", "-", "\n"))), max_size=5
).map(lambda words: "".join(map("".join, words)))


class Said(NamedTuple):
    """A message as it is told."""

    session: str
    role: str
    content: str
    tool_name: str | None
    tool_calls: Any
    timestamp: float


corpora = st.lists(
    st.builds(
        Said,
        session=st.sampled_from(("main", *SESSIONS)),
        role=st.sampled_from(("user", "assistant", "tool")),
        content=texts,
        tool_name=st.sampled_from((None, None, "docker", "foo_bar", "数据库")),
        tool_calls=st.sampled_from((None, None, [{"name": "docker", "数": "库连 the"}])),
        timestamp=st.integers(1, 9).map(float),
    ),
    min_size=1,
    max_size=30,
).map(lambda rows: sorted(rows, key=lambda row: row.session))
queries = st.lists(
    st.one_of(*map(st.sampled_from, (WORDS, WORDS, PARTS, OPERATORS))), min_size=1, max_size=6
).map(" ".join)
asked = st.fixed_dictionaries(
    {"query": queries},
    optional={
        "role_filter": st.sampled_from((["user"], ["user", "assistant"], ["assistant", "tool"])),
        "source_filter": st.sampled_from((["cli"], ["cli", "telegram"], ["cron", "cli"])),
        "exclude_sources": st.sampled_from((["cron"], ["telegram", "subagent"])),
        "sort": st.sampled_from(("oldest", "newest", "newest")),
        "limit": st.integers(1, 40),
        "offset": st.integers(0, 4),
    },
)


def meant(ask: dict[str, Any], said: list[Said]) -> list[int]:
    """Return the ids of all messages that a query means, newest first."""
    parsed, roles, sources = parse(ask["query"]), ask.get("role_filter"), ask.get("source_filter")
    rows = [
        (row, number, search_columns(row.content, row.tool_name, _stored(row), row.role))
        for number, row in enumerate(said, 1)
        if (roles is None or row.role in roles)
        and (sources is None or SESSIONS[row.session]["source"] in sources)
        and SESSIONS[row.session]["source"] not in ask.get("exclude_sources", ())
    ]
    rows.sort(key=lambda row: (row[0].timestamp, row[1]), reverse=True)
    has_tools, covers_all = "tool" in (roles or ()), "cron" in (sources or ())

    def inside(tree: Node | None) -> list[int]:
        return [
            number
            for row, number, columns in rows
            if tree is not None and matches_substrings(tree, columns[:2])
            if has_tools or covers_all or not (row.role == "tool" or row.session in UNCOVERED)
        ]

    if parsed.is_cjk:
        return inside(parsed.substrings())
    tree = parsed.words()
    if tree is None:
        return []
    hits = [number for _, number, columns in rows if matches_words(tree, columns)]
    return hits if hits or has_tools else inside(parsed.fallback())


def _stored(row: Said) -> str | None:
    return None if row.tool_calls is None else '[{"name": "docker", "数": "库连 the"}]'


async def tell(store: SessionDB, said: list[Said]) -> list[int]:
    """Write messages into an emptied store; return their ids."""
    await store.database.write(empty)
    for session_id, options in SESSIONS.items():
        await store.create_session(session_id, **options)
    for session_id, rows in groupby(said, key=lambda row: row.session):
        await store.append_messages_batch(session_id, [row._asdict() for row in rows])

    def ids(tx: Transaction) -> list[int]:
        return list(tx.connection.scalars(select(Message.id).order_by(Message.id)))

    return await store.database.read(ids)


def asked_page(ask: dict[str, Any], said: list[Said]) -> list[int]:
    """Return what is to be found; without an order all of it, sorted."""
    found = meant(ask, said)
    if "sort" not in ask:
        return sorted(found)
    start = ask.get("offset", 0)
    return found[:: -1 if ask["sort"] == "oldest" else 1][start : start + ask.get("limit", 20)]


async def check(
    store: SessionDB, said: list[Said], asks: list[tuple[dict[str, Any], list[int]]]
) -> None:
    """Compare what a store finds with what is meant."""
    numbers = {row_id: number for number, row_id in enumerate(await tell(store, said), 1)}
    for ask, expected in asks:
        page = {} if "sort" in ask else {"limit": None, "offset": 0}
        hits = await store.search_messages(**{**ask, **page}, fields=["id"])
        found = [numbers[hit["id"]] for hit in hits]
        assert (found if "sort" in ask else sorted(found)) == expected, ask


@pytest.mark.parametrize("queries", [2_000, pytest.param(20_000, marks=pytest.mark.full)])
def test_random_queries_find_what_they_mean(
    queries: int,
    make_location: Callable[..., str],
    postgres_server: PostgresServer,
) -> None:
    """Both databases are compared with one meaning, so with each other."""
    with two_stores(make_location, postgres_server) as (runner, stores):

        @settings(
            max_examples=queries // QUERIES,
            derandomize=queries == 2_000,
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(said=corpora, asks=st.lists(asked, min_size=QUERIES, max_size=QUERIES))
        def ask(said: list[Said], asks: list[dict[str, Any]]) -> None:
            expected = [(each, asked_page(each, said)) for each in asks]
            for store in stores:
                runner.run(check(store, said, expected))

        ask()
