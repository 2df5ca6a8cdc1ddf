"""The piece of a hit that is shown."""

from collections.abc import Callable

import pytest

from hermes_orm.search.query import parse
from hermes_orm.search.snippets import Snippet, substring_snippets, word_snippets
from tests.search.corpora import CORPUS, columns

MESSAGES = {row["id"]: columns(row) for row in CORPUS["messages"]}
LONG = " ".join([*(f"w{n}" for n in range(200)), "target", *(f"z{n}" for n in range(200))])


def words(query: str) -> Snippet:
    node = parse(query).words()
    assert node is not None
    return word_snippets(node)


def substrings(query: str) -> Snippet:
    node = parse(query).substrings()
    assert node is not None
    return substring_snippets(node)


@pytest.mark.parametrize(
    ("query", "message", "expected"),
    [
        ("docker", 18, "subagent found >>>docker<<< socket at /var/run/>>>docker<<<.sock"),
        (
            "docker deployment",
            2,
            "Run >>>docker<<<-compose up -d and check >>>deployment<<<.yaml first.",
        ),
        ('"hello world"', 28, ">>>HELLO World<<< >>>hello WORLD<<<"),
        (
            "snake case",
            6,
            "Email user@example.com about P2.2 and the >>>snake<<<_>>>case<<<_name variable",
        ),
        ("terminal", 4, ">>>terminal<<<"),
        ("giraffe", 24, "picture of a >>>giraffe<<<"),
    ],
)
def test_word_snippets(query: str, message: int, expected: str) -> None:
    assert words(query)(MESSAGES[message]) == expected


def test_word_snippet_of_tool_calls() -> None:
    snippet = words("kubectl")(MESSAGES[3])
    assert ">>>kubectl<<< get pods" in snippet
    assert snippet.replace(">>>", "").replace("<<<", "") == MESSAGES[3][2]


@pytest.mark.parametrize(
    ("query", "message", "expected"),
    [
        ("数据库连接", 11, "错误日志：>>>数据库连接<<<超时"),
        ("连接", 11, "错误日志：数据库>>>连接<<<超时"),
        ("catenate", 23, "con>>>catenate<<< the cat pictures; category list"),
    ],
)
def test_substring_snippets(query: str, message: int, expected: str) -> None:
    assert substrings(query)(MESSAGES[message]) == expected


def test_window_centres_the_match() -> None:
    before = " ".join(f"w{n}" for n in range(181, 200))
    after = " ".join(f"z{n}" for n in range(20))
    assert words("target")([LONG]) == f"...{before} >>>target<<< {after}..."


def test_window_shows_most_units_then_most_matches() -> None:
    filler = "x " * 60
    text = f"a a a {filler} a b {filler} a b b {filler} b"
    snippet = words("a OR b NOT q")([text])
    assert ">>>a<<< >>>b<<< >>>b<<<" in snippet
    assert snippet.count(">>>") == 3


def test_earlier_column_and_earlier_match_win() -> None:
    filler = "x " * 60
    assert words("a")(["", f"a one {filler} a two", "a three"]).startswith(">>>a<<< one")


def test_window_at_the_edge_keeps_the_whole_edge() -> None:
    assert words("z199")([f"{LONG}!"]).endswith(">>>z199<<<!")
    assert words("w0")([f"({LONG}"]).startswith("(>>>w0<<<")


def test_longer_matches_are_marked_first() -> None:
    assert words('one "one two" two*')(["one two, twofold"]) == ">>>one two<<<, >>>twofold<<<"


def test_a_phrase_longer_than_the_window_is_marked() -> None:
    phrase = " ".join(f"w{n}" for n in range(100, 150))
    assert words(f'"{phrase}"')([LONG]) == f"...>>>{phrase}<<<..."


def test_marks_enclose_combining_marks() -> None:
    assert words("cafe")(["un cafe\u0301 noir"]) == "un >>>cafe\u0301<<< noir"


def test_substring_piece_starts_40_characters_before_the_first_hit() -> None:
    text = f"{'x' * 50}Needle{'y' * 30}needle{'z' * 100}"
    piece = f"{'x' * 40}>>>Needle<<<{'y' * 30}>>>needle<<<{'z' * 38}"
    assert substrings("needle")([text]) == f"...{piece}..."


def test_substring_snippet_shows_the_first_column_that_holds_a_unit() -> None:
    assert substrings("file NOT read")(["nothing", "read_file"]) == "read_>>>file<<<"


@pytest.mark.parametrize("snippets", [words, substrings])
def test_without_a_match_the_text_begins(snippets: Callable[[str], Snippet]) -> None:
    assert snippets("gone")(["", "x" * 130]) == "x" * 120 + "..."
    assert snippets("gone")(["short", ""]) == "short"
    assert snippets("gone")(["", ""]) == ""
