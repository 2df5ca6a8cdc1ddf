"""The port finds the tokens that FTS5 finds."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hermes_orm.search.unicode61 import folded, tokens

EXAMINED = [*range(0xD800), *range(0xE000, 0x33000), *range(0x33000, 0x110000, 101)]


@pytest.fixture(params=["sqlite3", "pysqlite3"])
def sqlite(request: pytest.FixtureRequest) -> Any:
    """Each SQLite library that there is."""
    return pytest.importorskip(request.param)


def fts5_tokens(sqlite: Any, *texts: str) -> list[list[str]]:
    """The tokens that FTS5 finds in each text."""
    connection = sqlite.connect(":memory:")
    connection.execute("CREATE VIRTUAL TABLE texts USING fts5(text)")
    connection.execute("CREATE VIRTUAL TABLE terms USING fts5vocab(texts, instance)")
    connection.executemany("INSERT INTO texts (rowid, text) VALUES (?, ?)", enumerate(texts))
    found: list[dict[int, str]] = [{} for _ in texts]
    for row, offset, term in connection.execute("SELECT doc, offset, term FROM terms"):
        found[row][offset] = term
    connection.close()
    return [[term for _, term in sorted(terms.items())] for terms in found]


def test_every_character_is_treated_alike(sqlite: Any) -> None:
    texts = [f"a{chr(code)}b" for code in EXAMINED]
    different = [
        f"U+{code:04X}: {expected}, not {tokens(text)}"
        for code, text, expected in zip(EXAMINED, texts, fts5_tokens(sqlite, *texts), strict=True)
        if tokens(text) != expected
    ]
    assert not different[:20], f"{len(different)} characters differ"


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.text(
        st.sampled_from("aÉẞß é\u0301\u0300_-.🚀🤖中ς\u00ad\u200b\0") | st.characters(codec="utf-8")
    )
)
def test_texts_are_split_alike(sqlite: Any, text: str) -> None:
    assert [tokens(text)] == fts5_tokens(sqlite, text)


def test_a_lone_surrogate_separates() -> None:
    assert tokens("a\ud800b") == ["a", "b"]


@settings(deadline=None)
@given(st.text(st.sampled_from("aÉ \u0301.-🚀中") | st.characters()))
def test_folded_tokens_stand_where_they_were(text: str) -> None:
    where, places = folded(text)
    assert where.split() == tokens(text)
    assert len(places) == len(where) + 1
    assert places[-1] == len(text)
    for sign, place in zip(where, places, strict=False):
        assert tokens(text[place]) == [sign] * (sign != " ")
