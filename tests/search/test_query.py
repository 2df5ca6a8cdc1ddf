"""What users' text means."""

from typing import Any

import pytest
from hypothesis import given, settings

from hermes_orm.search.query import And, Node, Not, Or, SearchQuery, Unit, parse, positive_units
from hermes_orm.search.unicode61 import tokens
from tests.search.corpora import CORPUS, EXAMPLES, TEXTS, columns
from tests.search.evaluation import matches_substrings, matches_words

SETS = [query for query in CORPUS["queries"] if "limit" not in query["arguments"]]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: repr(example["query"]))
def test_query_has_its_meaning(example: dict[str, str]) -> None:
    query = parse(example["query"])
    node = query.substrings() if query.is_cjk else query.words()
    assert (node and meaning(node, query)) == example["meaning"]


def meaning(node: Node, query: SearchQuery, *, inner: bool = False) -> str:
    """The tree in the notation of the examples: folded phrases, or substrings as typed."""
    match node:
        case Unit(text, prefix, quoted):
            words = tokens(text)
            if query.is_cjk:
                return f'"{text}"' if quoted else text
            shown = words[0] if len(words) == 1 else f'"{" ".join(words)}"'
            return f"{shown}*" if prefix else shown
        case And(parts):
            shown = " AND ".join(meaning(part, query, inner=True) for part in parts)
        case Or(parts):
            shown = " OR ".join(meaning(part, query, inner=True) for part in parts)
        case Not(kept, dropped):
            shown = " NOT ".join(meaning(side, query, inner=True) for side in (kept, dropped))
    return f"({shown})" if inner else shown


@pytest.mark.parametrize("example", SETS, ids=lambda example: str(example["number"]))
def test_query_finds_its_messages(example: dict[str, Any]) -> None:
    query = parse(example["query"])
    assert set(found(query, **example["arguments"])) == set(example["hits"])


def found(
    query: SearchQuery,
    role_filter: list[str] | None = None,
    source_filter: list[str] | None = None,
    exclude_sources: list[str] | None = None,
    include_inactive: bool = False,
    sort: str = "",
) -> list[int]:
    """The messages of the corpus that a query finds, by the rules of routing."""
    roles = role_filter or []
    sources = {session["id"]: session["source"] for session in CORPUS["sessions"]}
    rows = [
        row
        for row in CORPUS["messages"]
        if (include_inactive or row.get("active", 1) or row.get("compacted"))
        and (not roles or row["role"] in roles)
        and (source_filter is None or sources[row["session_id"]] in source_filter)
        and sources[row["session_id"]] not in (exclude_sources or [])
    ]
    node = query.substrings() if query.is_cjk else query.words()
    if node is None:
        return []
    if not query.is_cjk:
        hits = [row["id"] for row in rows if matches_words(node, columns(row))]
        node = query.fallback()
        if hits or "tool" in roles or node is None:
            return hits
    return [
        row["id"]
        for row in rows
        if "tool" in roles
        or (row["role"] != "tool" and sources[row["session_id"]] not in ("cron", "subagent"))
        if matches_substrings(node, columns(row)[:2])
    ]


def test_none_is_an_empty_query() -> None:
    assert parse(None).words() is None


def test_other_types_are_refused_without_showing_them() -> None:
    with pytest.raises(TypeError, match="query must be a string or None, not bytes") as error:
        parse(b"secret")  # type: ignore[arg-type]
    assert "secret" not in str(error.value)


def test_only_the_first_2048_characters_count() -> None:
    assert parse("x" * 5_000).words() == Unit("x" * 2_048)
    assert parse('"' + "x" * 5_000 + '"').words() == Unit("x" * 2_047)


def test_several_exclusions_are_one() -> None:
    assert parse("a NOT b NOT c d").words() == Not(
        Unit("a"), Or((Unit("b"), And((Unit("c"), Unit("d")))))
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("launch OR 🚀", Unit("launch")),
        ("launch NOT 🚀", Unit("launch")),
        ("🚀 NOT launch", None),
        ("🚀 launch", Unit("launch")),
        ('launch AND ""', None),
    ],
)
def test_a_unit_without_tokens_is_nothing(text: str, expected: Node | None) -> None:
    assert parse(text).words() == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("python or java*", And((Unit("python"), Unit("java")))),
        ('python "or"', None),
        ("or not", None),
        ("ab cde", None),
        ("abc NOT 🚀🚀🚀", Not(Unit("abc"), Unit("🚀🚀🚀"))),
        ("abc OR and", Unit("abc")),
    ],
)
def test_fallback_takes_long_units_that_are_no_boolean_words(
    text: str, expected: Node | None
) -> None:
    assert parse(text).fallback() == expected


def test_positive_units_are_those_not_excluded() -> None:
    node = parse("a b NOT c OR d AND e NOT f NOT g").words()
    assert node is not None
    assert [unit.text for unit in positive_units(node)] == ["a", "b", "d", "e"]


@settings(deadline=None)
@given(TEXTS)
def test_every_text_is_a_query(text: str) -> None:
    query = parse(text)
    for node in (query.words(), query.substrings(), query.fallback()):
        assert node is None or all(unit.text.strip() for unit in positive_units(node))
