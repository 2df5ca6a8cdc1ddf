"""Flags and read state cover a conversation, and nothing else."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from hermes_orm import ReadOnlyStoreError, SessionDB
from tests.contract.stories import Story, ids

Sent = Callable[[], int]
FLAGS = ["archived", "pinned", "hidden"]
FORKS: dict[str, dict[str, Any]] = {
    "branch": {"config": {"_branched_from": "root"}},
    "delegate": {"config": {"_delegate_from": "root"}},
    "reset": {"config": {"_reset_from": "root"}},
    "tool": {"source": "tool"},
}


@pytest.fixture
def story(raw: Any) -> Story:
    return Story(raw)


async def flagged(raw: Any, flag: str) -> set[str]:
    return {row[0] for row in await raw.fetch(f"SELECT id FROM sessions WHERE {flag} <> 0")}


@pytest.mark.parametrize("flag", FLAGS)
@pytest.mark.parametrize("end", ["root", "mid", "tip"])
async def test_flag_covers_the_chain_from_any_of_its_sessions(
    db: SessionDB, story: Story, flag: str, end: str
) -> None:
    set_flag = getattr(db, f"set_session_{flag}")
    await story.chain()
    await story.new("other", 9)
    assert await set_flag(end, True) is True
    assert await flagged(story.raw, flag) == {"root", "mid", "tip"}
    assert await set_flag("root", True) is True, "it has that value already"
    row = await db.get_session("mid")
    assert row is not None and {type(row[name]) for name in FLAGS} == {int}  # type: ignore[literal-required]
    assert await set_flag(end, False) is True
    assert await flagged(story.raw, flag) == set()


@pytest.mark.parametrize("flag", FLAGS)
async def test_flag_of_an_unknown_session(db: SessionDB, flag: str) -> None:
    set_flag = getattr(db, f"set_session_{flag}")
    await db.create_session("a", "cli")
    unknown: Any
    for unknown in ("nope", "", None, "a\0", "a\ud800"):
        assert await set_flag(unknown, True) is False
        assert await db.set_session_read(unknown) is False
    assert await set_flag("a", "yes") is True
    row: Any = await db.get_session("a")
    assert row[flag] == 1
    assert await set_flag("a", None) is True
    row = await db.get_session("a")
    assert row[flag] == 0


@pytest.mark.parametrize("fork", FORKS)
async def test_flags_do_not_cross_to_a_fork_nor_back(
    db: SessionDB, story: Story, fork: str
) -> None:
    await story.chain()
    await story.new("fork", 4, parent="root", **FORKS[fork])
    assert await db.set_session_archived("root", True)
    assert await flagged(story.raw, "archived") == {"root", "mid", "tip"}
    assert await db.set_session_archived("tip", False)
    assert await db.set_session_archived("fork", True)
    assert await flagged(story.raw, "archived") == {"fork"}


async def test_flag_of_a_branch_that_was_compressed(db: SessionDB, story: Story) -> None:
    await story.chain()
    await story.new("b", 4, parent="root", config={"_branched_from": "root"})
    await story.end("b", "compression", 5)
    await story.new("c", 5, parent="b", config={"_branched_from": "root"})
    await db.set_session_pinned("c", True)
    assert await flagged(story.raw, "pinned") == {"b", "c"}


async def test_flags_stop_at_parents_that_were_not_compressed(db: SessionDB, story: Story) -> None:
    await story.new("p", 1)
    await story.new("c", 2, parent="p")
    await db.set_session_hidden("p", True)
    assert await flagged(story.raw, "hidden") == {"p"}
    await db.set_session_hidden("p", False)
    await db.set_session_hidden("c", True)
    assert await flagged(story.raw, "hidden") == {"c"}


async def test_sibling_is_no_part_of_the_path(db: SessionDB, story: Story) -> None:
    await story.chain()
    await story.new("sibling", 9, parent="root")
    await db.set_session_pinned("tip", True)
    assert await flagged(story.raw, "pinned") == {"root", "mid", "tip"}
    await db.set_session_pinned("root", False)
    assert await flagged(story.raw, "pinned") == set()
    await db.set_session_pinned("root", True)
    assert await flagged(story.raw, "pinned") == {"root", "mid", "tip", "sibling"}


async def test_malformed_config_has_no_marker(db: SessionDB, story: Story, raw: Any) -> None:
    await story.chain()
    await raw.execute("UPDATE sessions SET model_config = '{_branched_from'")
    await db.set_session_archived("mid", True)
    assert await flagged(raw, "archived") == {"root", "mid", "tip"}


async def test_parents_in_a_ring(db: SessionDB, story: Story, raw: Any) -> None:
    for name, parent in [("a", None), ("b", "a"), ("c", "b"), ("self", None)]:
        await story.new(name, 1, parent=parent)
    await raw.execute("UPDATE sessions SET parent_session_id = 'c' WHERE id = 'a'")
    await raw.execute("UPDATE sessions SET parent_session_id = 'self' WHERE id = 'self'")
    await raw.execute("UPDATE sessions SET ended_at = 2, end_reason = 'compression'")
    await db.set_session_pinned("b", True)
    assert await flagged(raw, "pinned") == {"a", "b", "c"}
    await db.set_session_hidden("self", True)
    assert await flagged(raw, "hidden") == {"self"}


async def test_long_chain_is_covered(db: SessionDB, raw: Any) -> None:
    count = 1200
    rows = [(f"s{n:04}", "cli", float(n), "compression", f"s{n - 1:04}") for n in range(count)]
    rows[0] = (*rows[0][:4], None)  # type: ignore[assignment]
    marks = ", ".join(["(?, ?, ?, ?, ?)"] * count)
    await raw.execute(
        "INSERT INTO sessions (id, source, started_at, end_reason, parent_session_id) "
        f"VALUES {marks}",
        *(value for row in rows for value in row),
    )
    assert await db.set_session_archived("s0600", True)
    assert len(await flagged(raw, "archived")) == count


async def test_bringing_back_forgets_that_it_was_archived_automatically(
    db: SessionDB, story: Story, raw: Any
) -> None:
    await story.chain()
    await story.new("other", 1, archived=1, auto_archived=1)
    await raw.execute("UPDATE sessions SET archived = 1, auto_archived = 1")
    await db.set_session_archived("tip", True)
    assert await flagged(raw, "auto_archived") == {"root", "mid", "tip", "other"}
    await db.set_session_archived("tip", False)
    assert await flagged(raw, "auto_archived") == {"other"}
    assert await flagged(raw, "archived") == {"other"}


async def test_archived_conversation_leaves_the_list_and_comes_back(
    db: SessionDB, story: Story
) -> None:
    await story.chain()
    await db.set_session_archived("root", True)
    assert ids(await db.list_sessions_rich()) == []
    assert ids(await db.list_sessions_rich(archived_only=True)) == ["tip"]
    await db.set_session_archived("tip", False)
    assert ids(await db.list_sessions_rich()) == ["tip"]


# Read state


async def test_unread_follows_activity(db: SessionDB, clock: Any) -> None:
    await db.create_session("s", "cli")

    async def is_unread() -> bool:
        (row,) = await db.list_sessions_rich()
        assert row["unread"] is SessionDB.session_unread(row)
        return row["unread"]

    await db.append_message("s", "user", "hi")
    assert await is_unread() is False, "never tracked"
    assert await db.set_session_read("s") is True
    assert await is_unread() is False
    clock.advance(1)
    await db.append_message("s", "user", "more")
    assert await is_unread() is True
    await db.set_session_read("s")
    assert await is_unread() is False
    assert await db.set_session_read("s", read=False) is True
    assert await is_unread() is True
    row = await db.get_session("s")
    assert row is not None and row["last_read_at"] == 0.0


async def test_conversation_is_read_at_one_moment(
    db: SessionDB, story: Story, raw: Any, clock: Any
) -> None:
    await story.chain()
    await story.new("fork", 4, parent="root", **FORKS["branch"])
    assert await db.set_session_read("mid") is True
    read = await raw.fetch("SELECT id, last_read_at FROM sessions ORDER BY id")
    assert read == [("fork", None), ("mid", clock()), ("root", clock()), ("tip", clock())]


@pytest.mark.parametrize(
    ("row", "is_unread"),
    [
        ({}, False),
        ({"last_read_at": 0.0, "last_active": 5}, True),
        ({"last_read_at": 5, "last_active": 5}, False),
        ({"last_read_at": 1, "last_active": 0, "started_at": 2}, True),
        ({"last_read_at": 0.0}, False),
        ({"last_read_at": None, "last_active": 5}, False),
    ],
)
def test_unread_of_a_row(row: dict[str, Any], is_unread: bool) -> None:
    assert SessionDB.session_unread(row) is is_unread


# Statements, races


async def test_each_is_one_statement(db: SessionDB, story: Story, sent: Sent) -> None:
    await story.chain()
    sent()
    for flag in FLAGS:
        for value in (True, False):
            await getattr(db, f"set_session_{flag}")("mid", value)
            assert sent() == 1
    await db.set_session_read("mid")
    assert sent() == 1


async def test_both_ends_are_flagged_at_once(db: SessionDB, open_store: Any, story: Story) -> None:
    stores = [db, open_store()]
    names = [f"s{number:02}" for number in range(40)]
    for number, name in enumerate(names):
        await story.new(name, 1, parent=names[number - 1] if number else None)
        await story.end(name, "compression", 2)

    async def toggle(store: SessionDB, end: str) -> None:
        for number in range(10):
            assert await store.set_session_archived(end, number % 2 == 0)
            assert await store.set_session_read(end)

    ends = [names[0], names[-1], names[20], names[-1]]
    await asyncio.gather(*(toggle(stores[n % 2], end) for n, end in enumerate(ends)))
    assert await flagged(story.raw, "archived") == set()


async def test_read_only_store_refuses_by_name(db: SessionDB, open_store: Any) -> None:
    await db.create_session("a", "cli")
    replica = open_store(read_only=True)
    for flag in (*FLAGS, "read"):
        with pytest.raises(ReadOnlyStoreError, match=f"set_session_{flag}:"):
            await getattr(replica, f"set_session_{flag}")("nope", True)
