"""Triggers of the shared schema: display order of a message's generations, and message uids."""

import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_orm import SessionDB
from tests.dialects.schemas import copied_sqlite, fresh_sqlite
from tests.raw import Raw

INSERT = (
    "INSERT INTO messages (id, session_id, role, content, timestamp, active, compacted, "
    "display_identity, display_order, message_uid) VALUES (?, ?, ?, ?, 1, ?, ?, ?, ?, ?)"
)


def insert(
    driver: Any,
    row: int,
    identity: bytes | None = None,
    order: int | None = None,
    *,
    active: int = 1,
    uid: str | None = "u",
) -> None:
    driver.execute(INSERT, (row, "s", "user", "text", active, 0, identity, order, uid))


@pytest.fixture
def driver() -> Iterator[Any]:
    with fresh_sqlite() as driver:
        driver.execute("INSERT INTO sessions (id, source, started_at) VALUES ('s', 'cli', 1)")
        yield driver


def orders(driver: Any) -> dict[int, int | None]:
    return dict(driver.execute("SELECT id, display_order FROM messages"))


def test_a_row_gets_its_own_uid_unless_it_brings_one(driver: Any) -> None:
    insert(driver, 1, uid=None)
    insert(driver, 2, uid=None)
    insert(driver, 3, uid="given")
    first, second, given = (row[0] for row in driver.execute("SELECT message_uid FROM messages"))
    assert re.fullmatch("[0-9a-f]{32}", first)
    assert re.fullmatch("[0-9a-f]{32}", second)
    assert first != second
    assert given == "given"


def test_a_row_is_ordered_by_its_id_or_joins_its_generations(driver: Any) -> None:
    insert(driver, 1)
    insert(driver, 2, b"A")
    insert(driver, 3, b"B")
    insert(driver, 4, b"A")
    insert(driver, 5, b"A", order=1)
    assert orders(driver) == {1: 1, 2: 2, 3: 3, 4: 2, 5: 1}


def test_hiding_and_showing_the_first_generation_moves_the_others(driver: Any) -> None:
    for row in (1, 2, 3):
        insert(driver, row, b"A")
    driver.execute("UPDATE messages SET active = 0 WHERE id = 1")
    assert orders(driver) == {1: 1, 2: 2, 3: 2}
    driver.execute("UPDATE messages SET compacted = 1 WHERE id = 1")
    assert orders(driver) == {1: 1, 2: 1, 3: 1}


def test_deleting_the_first_generation_moves_the_others(driver: Any) -> None:
    for row in (1, 2, 3):
        insert(driver, row, b"A")
    driver.execute("DELETE FROM messages WHERE id = 1")
    assert orders(driver) == {2: 2, 3: 2}


def test_a_changed_row_and_its_generations_are_identified_anew(driver: Any) -> None:
    for row in (1, 2):
        insert(driver, row, b"A")
    insert(driver, 3, b"B")
    driver.execute("UPDATE messages SET reasoning = 'x', display_metadata = '{}'")
    assert orders(driver) == {1: 1, 2: 1, 3: 3}
    driver.execute("UPDATE messages SET content = 'other' WHERE id = 2")
    rows = driver.execute("SELECT id, display_identity, display_order FROM messages").fetchall()
    assert rows == [(1, None, None), (2, None, None), (3, b"B", 3)]


@pytest.mark.parametrize("seed", range(6))
def test_the_triggers_do_what_upstreams_do(
    historic_stores: Path, tmp_path: Path, seed: int
) -> None:
    query = (
        "SELECT id, display_identity, display_order FROM messages "
        "WHERE session_id IN ('x', 'y') ORDER BY id"
    )
    with (
        copied_sqlite(historic_stores / "state-v31.db", tmp_path) as theirs,
        fresh_sqlite() as ours,
    ):
        for session in "xy":
            for driver in (theirs, ours):
                driver.execute(
                    "INSERT INTO sessions (id, source, started_at) VALUES (?, 'cli', 1)", (session,)
                )
        for statement, values in random_writes(random.Random(seed), 120):
            theirs.execute(statement, values)
            ours.execute(statement, values)
            assert ours.execute(query).fetchall() == theirs.execute(query).fetchall()


COLUMNS = (
    *("role", "content", "timestamp", "tool_call_id", "tool_calls", "tool_name", "display_kind"),
    *("display_metadata", "reasoning", "finish_reason", "api_content", "effect_disposition"),
)


def random_writes(chance: random.Random, count: int) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield statements over two sessions whose rows share few identities."""
    ids: list[int] = []
    for new in range(1000, 1000 + count):
        identity = chance.choice([None, b"A", b"A", b"B", b"C"])
        flags = chance.randint(0, 1), chance.randint(0, 1)
        match chance.randrange(10) if ids else 0:
            case 0 | 1 | 2 | 3:
                ids.append(chance.choice([new, new - 900]))
                order = chance.choice([None, None, None, 5, chance.choice(ids)])
                row = ids[-1], chance.choice("xy"), chance.choice(["user", "tool"]), "a"
                yield INSERT, (*row, *flags, identity, order, "u")
            case 4 | 5:
                statement = "UPDATE messages SET active = ?, compacted = ? WHERE id = ?"
                yield statement, (*flags, chance.choice(ids))
            case 6:
                statement = "UPDATE messages SET active = ? WHERE session_id = ? AND id > ?"
                yield statement, (flags[0], chance.choice("xy"), chance.choice(ids))
            case 7:
                statement = f"UPDATE messages SET {chance.choice(COLUMNS)} = ? WHERE id = ?"
                yield statement, (chance.choice("12"), chance.choice(ids))
            case 8:
                statement = (
                    "UPDATE messages SET display_identity = ?, display_order = ? WHERE id = ?"
                )
                yield statement, (identity, chance.choice([None, 7]), chance.choice(ids))
            case 9:
                yield "DELETE FROM messages WHERE id = ?", (ids.pop(chance.randrange(len(ids))),)


async def test_appends_have_the_order_that_the_trigger_would_give(
    make_location: Callable[..., str],
) -> None:
    path = make_location("sqlite")
    async with SessionDB(path) as db:
        await db.create_session("s", "cli")
        await db.append_message("s", "user", "first")
        await db.append_messages_batch("s", [{"role": "user", "content": str(i)} for i in range(3)])
        await Raw(path).execute("DELETE FROM messages WHERE id > 2")  # ids are never used again
        await db.append_message("s", "user", "last")
    rows = await Raw(path).fetch("SELECT id, display_order FROM messages ORDER BY id")
    assert rows == [(1, 1), (2, 2), (5, 5)]
