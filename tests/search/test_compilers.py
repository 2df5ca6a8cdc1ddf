"""SQLite finds with a compiled query what its tree means."""

import sqlite3
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings

from hermes_orm.search.compilers import spellings, to_fts5, to_pair_tsquery, to_tsquery
from hermes_orm.search.query import Node, Unit, parse
from tests.search.corpora import QUERIES, ROWS, TEXTS, Rows
from tests.search.evaluation import matches_substrings, matches_words


@pytest.fixture(scope="module")
def sqlite() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:")
    for name, tokenizer in (("word", "unicode61"), ("trigram", "trigram")):
        connection.execute(
            f"CREATE VIRTUAL TABLE {name} USING fts5(first, second, tokenize={tokenizer})"
        )
    return connection


def found(sqlite: sqlite3.Connection, table: str, rows: Rows, expression: str) -> list[int]:
    """The positions of the rows that an FTS5 expression matches."""
    sqlite.execute(f"DELETE FROM {table}")
    sqlite.executemany(
        f"INSERT INTO {table} (rowid, first, second) VALUES (?, ?, ?)",
        [(number, *row) for number, row in enumerate(rows)],
    )
    match = f"SELECT rowid FROM {table} WHERE {table} MATCH ? ORDER BY rowid"
    return [number for (number,) in sqlite.execute(match, (expression,))]


def meant(matches: Callable[[Node, Sequence[str]], bool], node: Node, rows: Rows) -> list[int]:
    return [number for number, row in enumerate(rows) if matches(node, row)]


@settings(max_examples=200, deadline=None)
@given(QUERIES, ROWS)
def test_fts5_finds_the_words_that_are_meant(
    sqlite: sqlite3.Connection, text: str, rows: Rows
) -> None:
    if node := parse(text).words():
        assert found(sqlite, "word", rows, to_fts5(node)) == meant(matches_words, node, rows)


@settings(max_examples=200, deadline=None)
@given(QUERIES, ROWS)
def test_trigrams_find_the_substrings_that_are_meant(
    sqlite: sqlite3.Connection, text: str, rows: Rows
) -> None:
    if node := parse(text).fallback():
        expected = meant(matches_substrings, node, rows)
        assert found(sqlite, "trigram", rows, to_fts5(node)) == expected


@settings(deadline=None)
@given(TEXTS)
def test_fts5_accepts_every_query(sqlite: sqlite3.Connection, text: str) -> None:
    query = parse(text)
    for node in (query.words(), query.substrings()):
        if node:
            found(sqlite, "word", [], to_fts5(node))


@pytest.mark.parametrize("operator", [" ", " AND ", " OR ", " NOT "])
def test_fts5_accepts_the_longest_queries(sqlite: sqlite3.Connection, operator: str) -> None:
    node = parse(operator.join("abcdefghij" * 70)).words()
    assert node is not None
    found(sqlite, "word", [("a", "b")], to_fts5(node))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Docker", "'docker'"),
        ("naïve-test*", "'naive' <-> 'test':*"),
        ("a OR b c NOT d OR e", "'a' | 'b' & 'c' & !('d') | 'e'"),
        ("a NOT b NOT c d", "'a' & !('b' | 'c' & 'd')"),
    ],
)
def test_tsquery_of_words(text: str, expected: str) -> None:
    node = parse(text).words()
    assert node is not None
    assert to_tsquery(node) == expected


def test_tsquery_cuts_words_on_a_character_boundary() -> None:
    assert to_tsquery(Unit("界" * 800)) == f"'{'界' * 680}'"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("数据库", "'~数据' & '~据库'"),
        ("数据 youer服务", "'~数据' & '~服务'"),
        ("数据 连", "'~数据'"),
        ("数据 OR 连接", "'~数据' | '~连接'"),
        ("数据 OR 连", None),
        ("数据 NOT 连接", "'~数据'"),
        ("连", None),
    ],
)
def test_pairs_that_every_hit_holds(text: str, expected: str | None) -> None:
    node = parse(text).substrings()
    assert node is not None
    assert to_pair_tsquery(node) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("100%_Done", ("100%_done",)),
        ("éClair", ("éclair", "Éclair")),
        ("数据", ("数据",)),
    ],
)
def test_spellings(text: str, expected: tuple[str, ...]) -> None:
    assert spellings(Unit(text)) == expected
