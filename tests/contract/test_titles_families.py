"""Titles that differ by a number: finding the latest segment, and naming the next one."""

from collections.abc import Callable
from typing import Any

import pytest

from hermes_orm import SessionDB
from tests.contract.stories import Story

Sent = Callable[[], int]


@pytest.fixture
def story(raw: Any) -> Story:
    return Story(raw)


async def entitle(story: Story, *titles: str) -> None:
    """Sessions a, b, c ... started one after the other, with these titles."""
    for number, title in enumerate(titles):
        await story.new(chr(ord("a") + number), number, title=title)


@pytest.fixture
async def families(story: Story) -> None:
    await entitle(story, "Foo", "Foo #2", "Foo #3", "Bar", "A_b", "Axb #7")


@pytest.mark.parametrize(
    ("title", "session_id"),
    [("Foo", "c"), ("Foo #2", "b"), ("Bar", "d"), ("A_b", "e"), ("nope", None), ("foo", "c")],
)
@pytest.mark.usefixtures("families")
async def test_latest_segment_of_a_title(db: SessionDB, title: str, session_id: str | None) -> None:
    assert await db.resolve_session_by_title(title) == session_id


@pytest.mark.parametrize(
    ("base", "title"),
    [
        ("Foo", "Foo #4"),
        ("Foo #2", "Foo #4"),
        ("Bar", "Bar #2"),
        ("A_b", "A_b #2"),
        ("nope #4", "nope"),
        ("nope", "nope"),
        ("foo", "foo #2"),
        ("Foo #x", "Foo #x"),
        ("", ""),
    ],
)
@pytest.mark.usefixtures("families")
async def test_next_title(db: SessionDB, base: str, title: str) -> None:
    assert await db.get_next_title_in_lineage(base) == title


async def test_segments_are_numbered(db: SessionDB, story: Story) -> None:
    await entitle(story, "Foo", "Foo #bugfix", "Foo #", "Foo #2x", "Foo # 2", "Foo #²", "Foo #٣")
    assert await db.resolve_session_by_title("Foo") == "a"
    assert await db.resolve_session_by_title("Foo #bugfix") == "b"
    assert await db.get_next_title_in_lineage("Foo") == "Foo #2"


async def test_any_title_with_the_stem_asks_for_a_number(db: SessionDB, story: Story) -> None:
    await entitle(story, "Foo #bugfix", "BAR #9")
    assert await db.get_next_title_in_lineage("foo") == "foo #2"
    assert await db.get_next_title_in_lineage("bar") == "bar #2"
    assert await db.get_next_title_in_lineage("BAR") == "BAR #10"


async def test_latest_start_decides_then_the_id(db: SessionDB, story: Story) -> None:
    for name, at, title in [("x", 5, "T #2"), ("y", 9, "T #3"), ("z", 9, "t #004"), ("t", 99, "T")]:
        await story.new(name, at, title=title)
    assert await db.resolve_session_by_title("T") == "z"
    assert await db.get_next_title_in_lineage("T") == "T #4"


async def test_numbers_are_not_limited(db: SessionDB, story: Story) -> None:
    await entitle(story, "T #9", "T #10", "T #00000000000000000000009", f"T #{2**70}", "T #0")
    assert await db.get_next_title_in_lineage("T") == f"T #{2**70 + 1}"


async def test_signs_of_patterns_are_literal(db: SessionDB, story: Story) -> None:
    await entitle(story, "100% done", "100X done #7", "user_auth #3", "userXauth #9", "a\\ #2")
    assert await db.get_next_title_in_lineage("100% done") == "100% done #2"
    assert await db.get_next_title_in_lineage("user_auth") == "user_auth #4"
    assert await db.get_next_title_in_lineage("a\\") == "a\\ #3"
    assert await db.resolve_session_by_title("100% done") == "a"
    assert await db.resolve_session_by_title("user_auth") == "c"


async def test_only_ascii_letters_are_folded(db: SessionDB, story: Story) -> None:
    await entitle(story, "École #2", "ÉCOLE #3", "ǅ #2", "İ #2", "ſ #2", "\u212a #2")
    assert await db.resolve_session_by_title("ÉCOLE") == "b"
    assert await db.resolve_session_by_title("Écolé") is None
    assert await db.resolve_session_by_title("ÉcOlE") == "b"
    assert await db.resolve_session_by_title("éCOLE") is None
    assert await db.resolve_session_by_title("École") == "b"
    for other in ("ǆ", "i", "s", "k"):
        assert await db.resolve_session_by_title(other) is None


@pytest.mark.parametrize(
    "base", ["Quite A Long Title Of Many Letters", "1234567890" * 9, "x", "😀"]
)
async def test_every_case_of_a_stem_is_found(db: SessionDB, story: Story, base: str) -> None:
    await entitle(story, f"{base} #2", f"{base.upper()} #3", f"{base[:-1]}", f"{base}! #9")
    assert await db.resolve_session_by_title(base.lower()) in ("a", "b")
    assert await db.resolve_session_by_title(base.swapcase()) in ("a", "b")
    assert await db.resolve_session_by_title(f"{base}!") == "d"


async def test_title_that_nothing_can_have(db: SessionDB, story: Story) -> None:
    await entitle(story, "T", "T #2")
    title: Any
    for title in ("a\0", "\ud800", "x" * 60_000, None):
        assert await db.resolve_session_by_title(title) is None
    assert await db.get_next_title_in_lineage("a\0 #2") == "a\0"


# Bases that are too long for a number


async def test_long_base_is_cut_for_its_number(db: SessionDB, story: Story) -> None:
    await entitle(story, "x" * 100, "x" * 98 + " y")
    cut = "x" * 97 + " #2"
    assert await db.get_next_title_in_lineage("x" * 100) == cut
    assert await db.get_next_title_in_lineage("x" * 98 + " y") == cut
    assert await db.set_session_title("b", cut) is True
    assert await db.get_next_title_in_lineage("x" * 100) == "x" * 97 + " #3"
    assert await db.get_next_title_in_lineage(cut) == "x" * 97 + " #3"


async def test_numbers_grow_until_a_cut_title_is_free(db: SessionDB, story: Story) -> None:
    taken = [f"{'x' * 97} #{number}" for number in range(2, 10)] + [f"{'x' * 96} #10"]
    await entitle(story, "x" * 99, *taken)
    assert await db.get_next_title_in_lineage("x" * 99) == f"{'x' * 96} #11"


async def test_blanks_before_the_cut_are_removed(db: SessionDB, story: Story) -> None:
    base = "x" * 90 + " " * 7 + "yyy"
    await entitle(story, base)
    assert await db.get_next_title_in_lineage(base) == "x" * 90 + " #2"


async def test_base_longer_than_any_title(db: SessionDB, story: Story) -> None:
    assert await db.get_next_title_in_lineage("x" * 120) == "x" * 100
    await entitle(story, "x" * 100)
    assert await db.get_next_title_in_lineage("x" * 120) == "x" * 97 + " #2"


async def test_statements(db: SessionDB, story: Story, sent: Sent) -> None:
    await entitle(story, "Foo", "Foo #2")
    sent()
    await db.resolve_session_by_title("foo")
    assert sent() == 1
    await db.get_next_title_in_lineage("Foo")
    assert sent() == 1
