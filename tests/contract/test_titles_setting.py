"""Cleaning, setting and reading titles: ranks, uniqueness, and whose title may be taken."""

import asyncio
import enum
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import pytest

import hermes_orm
from hermes_orm import ReadOnlyStoreError, SessionDB
from tests.contract.stories import Story

Sent = Callable[[], int]
UNKNOWN: list[Any] = ["nope", "", None, "a\0", "a\ud800"]


@pytest.fixture
def story(raw: Any) -> Story:
    return Story(raw)


async def titled(db: SessionDB, session_id: str) -> tuple[str | None, str | None]:
    """Title and source, which both ways of reading agree on."""
    row = await db.get_session(session_id)
    assert row is not None
    pair = await db.get_session_title(session_id), await db.get_session_title_source(session_id)
    assert pair == (row["title"], row["title_source"])
    return pair


# Cleaning


@pytest.mark.parametrize(
    ("title", "cleaned"),
    [
        ("  A\t\n b ", "A b"),
        ("a\x0bb", "ab"),
        ("a\x0cb\x1c\x7fc", "abc"),
        ("a\u200db", "ab"),
        ("a\u2028b\u202ec\u2066d\ufeffe\ufffcf\ufff9g", "abcdefg"),
        ("a\u00a0b\u0085c\u3000d\u202fe", "a b c d e"),
        ("a\u00adb\u0080\ufff8", "a\u00adb\u0080\ufff8"),
        ("a\r\nb", "a b"),
        ("bad\x00t", "badt"),
        ("bad \ud83d", "bad \ufffd"),
        ("\ud800", "\ufffd"),
        ("😀", "😀"),
        ("\x00\u200b", None),
        (" \t\n", None),
        ("", None),
        (None, None),
        (0, None),
        (False, None),
        ([], None),
        ("x" * 100 + "\u200b  ", "x" * 100),
        ("  " + "é" * 100, "é" * 100),
    ],
)
def test_cleaned_title(title: Any, cleaned: str | None) -> None:
    assert SessionDB.sanitize_title(title) == cleaned
    assert hermes_orm.sanitize_title(title) == cleaned


def test_titles_of_more_than_100_characters_are_refused() -> None:
    with pytest.raises(ValueError, match=r"Title too long: 101 .* 100"):
        SessionDB.sanitize_title("x" * 101)
    assert SessionDB.MAX_TITLE_LENGTH == 100


@pytest.mark.parametrize("title", [5, True, ["x"], b"x"])
def test_title_that_is_no_text_is_a_type_error(title: Any) -> None:
    with pytest.raises(TypeError, match=type(title).__name__):
        SessionDB.sanitize_title(title)


# Setting


async def test_titles_are_unique_and_case_counts(db: SessionDB) -> None:
    await db.create_session("a", "cli")
    await db.create_session("b", "cli")
    assert await db.set_session_title("a", " Foo\n") is True
    with pytest.raises(ValueError, match=r"'Foo' is already in use by session 'a'"):
        await db.set_session_title("b", "Foo")
    assert await titled(db, "b") == (None, None)
    assert await db.set_session_title("b", "foo") is True
    assert await db.set_session_title("a", "Foo") is True, "the same title again"
    with pytest.raises(ValueError, match="already in use"):
        await db.set_session_title("b", "Foo")
    assert await titled(db, "b") == ("foo", "user")
    assert await db.set_session_title("a", "") is True
    assert await titled(db, "a") == (None, None)
    assert await db.set_session_title("b", "Foo") is True


async def test_unknown_session_has_no_title(db: SessionDB) -> None:
    for unknown in UNKNOWN:
        assert await db.set_session_title(unknown, "x") is False
        assert await db.set_auto_title(unknown, "x", source="llm") is False
        assert await db.set_auto_title_if_empty(unknown, "x") is False
        assert await db.set_session_title_source(unknown, "llm") is False
        assert await db.get_session_title(unknown) is None
        assert await db.get_session_title_source(unknown) is None
        with pytest.raises(ValueError, match="Title too long"):
            await db.set_session_title(unknown, "x" * 101)
    await db.create_session("a", "cli")
    await db.set_session_title("a", "taken")
    assert await db.set_session_title("nope", "taken") is False


async def test_owner_is_described_however_hidden_it_is(db: SessionDB) -> None:
    await db.create_session("old", "tui")
    await db.set_session_title("old", "T")
    await db.set_session_archived("old", True)
    await db.create_session("new", "cli")
    with pytest.raises(ValueError, match=r"'old' \(source tui, archived\)"):
        await db.set_auto_title("new", "T", source="derived")
    assert await titled(db, "new") == (None, None)


async def test_automatic_titles_replace_lower_ranks_only(db: SessionDB) -> None:
    await db.create_session("a", "cli")
    assert await db.set_auto_title("a", "D", source="derived") is True
    assert await db.set_auto_title("a", "D2", source="derived") is False
    assert await titled(db, "a") == ("D", "derived")
    assert await db.set_auto_title_if_empty("a", "L") is True
    assert await db.set_auto_title("a", "L2", source="llm") is False
    assert await titled(db, "a") == ("L", "llm")
    assert await db.set_session_title("a", "U") is True
    assert await db.set_auto_title_if_empty("a", "L3") is False
    assert await titled(db, "a") == ("U", "user")
    assert await db.set_session_title_source("a", "derived") is True
    assert await db.set_auto_title("a", "L4", source="llm") is True
    assert await titled(db, "a") == ("L4", "llm")


async def test_rank_is_looked_at_before_the_owner(db: SessionDB) -> None:
    for name in "ab":
        await db.create_session(name, "cli")
        await db.set_session_title(name, name)
    assert await db.set_auto_title("b", "a", source="llm") is False


async def test_empty_automatic_title_clears_lower_ranks(db: SessionDB) -> None:
    await db.create_session("a", "cli")
    assert await db.set_auto_title("a", " ", source="derived") is True
    assert await titled(db, "a") == (None, None)
    await db.set_auto_title("a", "D", source="derived")
    assert await db.set_auto_title("a", "", source="derived") is False
    assert await db.set_auto_title_if_empty("a", None) is True
    assert await titled(db, "a") == (None, None)


@pytest.mark.parametrize(
    ("source", "is_replaced"), [(None, False), ("", True), ("auto", True), ("user", False)]
)
async def test_rank_of_a_stored_source(
    db: SessionDB, raw: Any, source: str | None, is_replaced: bool
) -> None:
    await db.create_session("a", "cli")
    await raw.execute("UPDATE sessions SET title = 'old', title_source = ?", source)
    assert await db.set_auto_title("a", "N", source="derived") is False
    assert await titled(db, "a") == ("old", source)
    assert await db.set_auto_title("a", "N", source="llm") is is_replaced


async def test_stored_empty_title_is_a_title(db: SessionDB, raw: Any) -> None:
    await db.create_session("a", "cli")
    await raw.execute("UPDATE sessions SET title = ''")
    assert await db.set_auto_title("a", "N", source="llm") is False
    assert await db.set_session_title_source("a", "llm") is True
    assert await titled(db, "a") == ("", "llm")
    assert await db.set_session_title("a", "N") is True


async def test_sources_are_checked_first(db: SessionDB) -> None:
    source: Any
    for source in ("user", "", "LLM", None):
        with pytest.raises(ValueError, match="invalid automatic title source"):
            await db.set_auto_title("nope", "x" * 101, source=source)
    for source in ("auto", "", None):
        with pytest.raises(ValueError, match="invalid title source"):
            await db.set_session_title_source("nope", source)


async def test_source_may_be_a_member_of_an_enum(db: SessionDB) -> None:
    class Source(str, enum.Enum):  # noqa: UP042  (its hash is not that of the text)
        MODEL = "llm"

    await db.create_session("a", "cli")
    assert await db.set_auto_title("a", "T", source=Source.MODEL) is True
    assert await db.set_session_title_source("a", Source.MODEL) is True
    assert await titled(db, "a") == ("T", "llm")


async def test_source_of_an_untitled_session(db: SessionDB, raw: Any) -> None:
    await db.create_session("a", "cli")
    assert await db.set_session_title_source("a", "user") is False
    await raw.execute("UPDATE sessions SET title_source = 'llm'")
    assert await db.get_session_title_source("a") is None


# Titles along a conversation


async def test_title_is_taken_from_an_earlier_session(db: SessionDB, story: Story) -> None:
    await story.chain(title="T", title_source="llm")
    assert await db.set_session_title("tip", "T") is True
    assert await titled(db, "root") == (None, None)
    assert await titled(db, "tip") == ("T", "user")
    with pytest.raises(ValueError, match="in use by session 'tip'"):
        await db.set_session_title("root", "T")
    assert await titled(db, "tip") == ("T", "user")


async def test_continuation_gets_its_own_name_back(db: SessionDB, story: Story) -> None:
    await story.chain(title="fp", title_source="user")
    await db.set_auto_title_if_empty("tip", "fp #2")
    assert await db.set_session_title("tip", "fp") is True
    assert await titled(db, "tip") == ("fp", "user")


async def test_title_is_taken_by_a_model_too(db: SessionDB, story: Story) -> None:
    await story.chain(title="T", title_source="user")
    assert await db.set_auto_title_if_empty("mid", "T") is True
    assert await titled(db, "root") == (None, None)


@pytest.mark.parametrize("marker", ["_branched_from", "_delegate_from", "_reset_from", "source"])
async def test_fork_cannot_take_the_title_of_its_origin(
    db: SessionDB, story: Story, marker: str
) -> None:
    await story.chain(title="T", title_source="llm")
    fork: dict[str, Any] = (
        {"source": "tool"} if marker == "source" else {"config": {marker: "root"}}
    )
    await story.new("fork", 4, parent="root", **fork)
    with pytest.raises(ValueError, match="in use by session 'root'"):
        await db.set_session_title("fork", "T")
    assert await titled(db, "root") == ("T", "llm")


async def test_neither_later_sessions_nor_siblings_lose_their_title(
    db: SessionDB, story: Story
) -> None:
    await story.chain()
    await story.new("sibling", 9, parent="root")
    await db.set_session_title("mid", "T")
    for other in ("root", "sibling"):
        with pytest.raises(ValueError, match="in use by session 'mid'"):
            await db.set_session_title(other, "T")


async def test_open_parent_keeps_its_title(db: SessionDB, story: Story) -> None:
    await story.new("p", 1, title="T")
    await story.new("c", 2, parent="p")
    with pytest.raises(ValueError, match="already in use"):
        await db.set_session_title("c", "T")


async def test_title_moves_within_a_ring_of_sessions(db: SessionDB, story: Story, raw: Any) -> None:
    await story.new("a", 1)
    await story.new("b", 2, parent="a")
    await raw.execute("UPDATE sessions SET parent_session_id = 'b' WHERE id = 'a'")
    await raw.execute("UPDATE sessions SET ended_at = 3, end_reason = 'compression'")
    await db.set_session_title("a", "T")
    assert await db.set_session_title("b", "T") is True
    assert await titled(db, "a") == (None, None)


# Reading


async def test_session_by_title(db: SessionDB) -> None:
    await db.create_session("a", "cli", system_prompt="P")
    await db.set_session_title("a", "Über #1")
    row = await db.get_session_by_title("Über #1")
    assert row == await db.get_session("a")
    assert row is not None and len(row) == 55 and row["system_prompt"] == "P"
    other: Any
    for other in ("über #1", " Über #1", "Über", "", None, "a\0", "\ud800", "x" * 60_000):
        assert await db.get_session_by_title(other) is None


async def test_uncommitted_title_is_not_read(db: SessionDB, raw: Any) -> None:
    await db.create_session("a", "cli")
    await db.set_session_title("a", "OLD")
    with raw.engine.connect() as connection:
        connection.exec_driver_sql("UPDATE sessions SET title = 'NEW'")
        assert await db.get_session_title("a") == "OLD"
        connection.rollback()
    assert await db.get_session_title("a") == "OLD"


async def test_title_of_a_unit_that_fails_is_not_read(db: SessionDB) -> None:
    await db.create_session("a", "cli")
    await db.create_session("b", "cli")
    await db.set_session_title("a", "OLD")

    async def fail() -> None:
        with pytest.raises(ValueError, match="already in use"):
            await db.set_session_title("b", "OLD")

    reads = [db.get_session_title("b") for _ in range(8)]
    assert await asyncio.gather(fail(), *reads) == [None] * 9


# Statements, races


async def one_succeeds(calls: Iterable[Awaitable[bool]]) -> None:
    """Make all calls at once: one returns True, the others say that the title is in use."""
    results = await asyncio.gather(*calls, return_exceptions=True)
    refusals = [result for result in results if result is not True]
    assert len(refusals) == len(results) - 1
    for refusal in refusals:
        assert type(refusal) is ValueError and "already in use by session" in str(refusal)


async def test_statements(db: SessionDB, story: Story, sent: Sent) -> None:
    await story.chain(title="T")
    await db.create_session("s", "cli")
    sent()
    await db.set_session_title("s", "S")
    assert sent() == 1
    await db.set_session_title("s", "")
    assert sent() == 1
    await db.set_auto_title_if_empty("s", "S")
    assert sent() == 1
    await db.set_auto_title_if_empty("s", "S2")
    assert sent() == 2, "what is in the way?"
    await db.set_session_title("tip", "T")
    assert sent() == 5, "try, lock, look at the edges, clear, set"
    with pytest.raises(ValueError, match="already in use"):
        await db.set_session_title("s", "T")
    assert sent() == 3
    for call in (
        db.set_session_title_source("s", "llm"),
        db.get_session_title("s"),
        db.get_session_title_source("s"),
        db.get_session_by_title("S"),
    ):
        await call
        assert sent() == 1


async def test_two_stores_set_one_title(db: SessionDB, open_store: Any) -> None:
    stores = [db, open_store()]
    for session_id in "ab":
        await db.create_session(session_id, "cli")
    for number in range(20):
        title = f"X{number}"
        await one_succeeds(
            store.set_session_title(name, title) for store, name in zip(stores, "ab", strict=True)
        )


async def test_tasks_set_one_automatic_title(db: SessionDB) -> None:
    names = [f"s{number}" for number in range(8)]
    for name in names:
        await db.create_session(name, "cli")
    await one_succeeds(db.set_auto_title_if_empty(name, "Intro") for name in names)
    assert [await titled(db, name) for name in names].count(("Intro", "llm")) == 1
    assert await db.get_next_title_in_lineage("Intro") == "Intro #2"


async def test_first_of_several_automatic_titles_stays(db: SessionDB, open_store: Any) -> None:
    await db.create_session("a", "cli")
    stores = [db, open_store()]
    set_it = (stores[n % 2].set_auto_title("a", f"T{n}", source="llm") for n in range(8))
    results = await asyncio.gather(*set_it)
    assert sum(results) == 1
    assert (await db.get_session_title("a")) == f"T{results.index(True)}"


async def test_siblings_take_one_title_from_their_parent(
    db: SessionDB, open_store: Any, story: Story
) -> None:
    stores = [db, open_store()]
    await story.new("p", 1, title="T")
    await story.end("p", "compression", 2)
    for number in range(6):
        await story.new(f"c{number}", 3, parent="p")
    await one_succeeds(stores[n % 2].set_session_title(f"c{n}", "T") for n in range(6))
    assert await titled(db, "p") == (None, None)


async def test_read_only_store_refuses_by_name(db: SessionDB, open_store: Any) -> None:
    await db.create_session("a", "cli")
    replica = open_store(read_only=True)
    for operation, arguments in {
        "set_session_title": ("a", "x"),
        "set_auto_title_if_empty": (None, ""),
        "set_session_title_source": ("nope", "llm"),
    }.items():
        with pytest.raises(ReadOnlyStoreError, match=f"{operation}:"):
            await getattr(replica, operation)(*arguments)
    with pytest.raises(ReadOnlyStoreError, match="set_auto_title:"):
        await replica.set_auto_title("a", "x", source="llm")
    assert await replica.get_next_title_in_lineage("x") == "x"
    assert await replica.get_session_by_title("x") is None
