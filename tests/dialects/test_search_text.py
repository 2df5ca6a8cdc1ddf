"""PostgreSQL takes the vectors and queries that are built here, and finds what they mean."""

from collections.abc import Iterator

import psycopg
import pytest
from hypothesis import given, settings

from hermes_orm.search.compilers import to_pair_tsquery, to_tsquery
from hermes_orm.search.query import parse
from hermes_orm.search.vector import tsvector_text
from tests.postgres_server import PostgresServer
from tests.search.corpora import QUERIES, ROWS, TEXTS, Rows
from tests.search.evaluation import matches_substrings, matches_words

MATCH = """
    SELECT number - 1
    FROM unnest(CAST(%s AS text[])) WITH ORDINALITY AS message (vector, number)
    WHERE CAST(vector AS tsvector) @@ CAST(%s AS tsquery) ORDER BY number
"""


@pytest.fixture(scope="module")
def postgres(postgres_server: PostgresServer) -> Iterator[psycopg.Connection]:
    with postgres_server.admin() as connection:
        yield connection


def found(postgres: psycopg.Connection, rows: Rows, query: str) -> list[int]:
    vectors = [tsvector_text(first, second, None, "user")[0] for first, second in rows]
    return [number for (number,) in postgres.execute(MATCH, (vectors, query))]


@settings(max_examples=150, deadline=None)
@given(QUERIES, ROWS)
def test_words_that_are_meant_are_found(
    postgres: psycopg.Connection, text: str, rows: Rows
) -> None:
    if node := parse(text).words():
        expected = [number for number, row in enumerate(rows) if matches_words(node, row)]
        assert found(postgres, rows, to_tsquery(node)) == expected


@settings(max_examples=100, deadline=None)
@given(QUERIES, ROWS)
def test_pairs_never_lose_a_hit(postgres: psycopg.Connection, text: str, rows: Rows) -> None:
    node = parse(text).substrings()
    if node and (pairs := to_pair_tsquery(node)):
        hits = {number for number, row in enumerate(rows) if matches_substrings(node, row)}
        assert hits <= set(found(postgres, rows, pairs))


@settings(max_examples=150, deadline=None)
@given(TEXTS)
def test_every_text_can_be_stored_and_searched(postgres: psycopg.Connection, text: str) -> None:
    vector, _ = tsvector_text(text, text, text, "user")
    postgres.execute("SELECT CAST(%s AS tsvector)", (vector,))
    query = parse(text)
    if words := query.words():
        postgres.execute("SELECT CAST(%s AS tsquery)", (to_tsquery(words),))
    if (substrings := query.substrings()) and (pairs := to_pair_tsquery(substrings)):
        postgres.execute("SELECT CAST(%s AS tsquery)", (pairs,))


@pytest.mark.parametrize("operator", [" ", " AND ", " OR ", " NOT "])
def test_the_longest_queries_can_be_searched(postgres: psycopg.Connection, operator: str) -> None:
    node = parse(operator.join("abcdefghij" * 70)).words()
    assert node is not None
    assert found(postgres, [("k", "l")], to_tsquery(node)) == []


@pytest.mark.parametrize(
    "text",
    [
        "a " * 40_000,
        " ".join("".join(chr(0x20000 + run * 8 + n) for n in range(8)) for run in range(5_000)),
        "".join(chr(0x4E00 + n % 20_000) for n in range(70_000)),
        " ".join(f"{number:016x}" for number in range(10_000)),
        "界" * 70_000,
    ],
    ids=["one word", "CJK words", "CJK run", "distinct words", "one character"],
)
def test_the_largest_messages_can_be_stored(postgres: psycopg.Connection, text: str) -> None:
    vector, _ = tsvector_text(text, None, None, "user")
    postgres.execute("SELECT CAST(%s AS tsvector)", (vector,))
