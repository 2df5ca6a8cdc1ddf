"""Appending messages, one by one and in batches: messages.md sections 3 and 19."""

import asyncio
import sqlite3
from collections.abc import Callable
from itertools import chain
from typing import Any

import pytest

from hermes_orm.errors import ReadOnlyStoreError
from tests.contract.turns import assistant, contents, user


async def counters(db: Any, session: str) -> tuple[int, int]:
    row = await db.get_session(session)
    return row["message_count"], row["tool_call_count"]


async def test_append_returns_growing_ids_and_counts(db: Any, session: str) -> None:
    first = await db.append_message(session, "user", "a")
    second = await db.append_message(session, "assistant", "b", tool_calls=[{"id": 1}, {"id": 2}])
    assert first < second
    assert await counters(db, session) == (2, 2)


async def test_unset_counters_count_from_zero(db: Any, raw: Any, session: str) -> None:
    await raw.execute("UPDATE sessions SET message_count = NULL, tool_call_count = NULL")
    await db.append_message(session, "assistant", "b", tool_calls=[{"id": 1}])
    assert await counters(db, session) == (1, 1)


async def test_append_changes_nothing_else_of_the_session(db: Any, session: str) -> None:
    await db.end_session(session, "user_exit")
    before = await db.get_session(session)
    await db.append_message(session, "user", "a")
    assert await db.get_session(session) == before | {"message_count": 1}


async def test_every_row_gets_a_uid_of_its_own(db: Any, raw: Any, session: str) -> None:
    await db.append_message(session, "user", "a")
    await db.append_messages_batch(session, [user("b"), user("b", _compressed_summary=True)])
    rows = await raw.fetch(
        "SELECT message_uid, _compressed_summary, display_identity FROM messages ORDER BY id"
    )
    assert len({uid for uid, _, _ in rows if len(uid) == 32 and int(uid, 16) >= 0}) == 3
    assert [row[1:] for row in rows] == [(0, None), (0, None), (1, None)]


async def test_batch_returns_how_many(db: Any, session: str) -> None:
    batch = [user("a"), assistant("b", "1"), user("c")]
    assert await db.append_messages_batch(session, batch) == 3
    assert await db.append_messages_batch(session, tuple(batch)) == 3
    assert contents(await db.get_messages(session)) == ["a", "b", "c"] * 2
    assert await counters(db, session) == (6, 2)
    assert batch == [user("a"), assistant("b", "1"), user("c")]


async def test_batch_in_chunks(db: Any, session: str) -> None:
    batch = [user(str(number)) for number in range(5)]
    assert await db.append_messages_batch(session, batch, chunk_rows=2) == 5
    assert contents(await db.get_messages(session)) == list("01234")
    with pytest.raises(ValueError, match="chunk_rows must be positive"):
        await db.append_messages_batch(session, batch, chunk_rows=0)
    assert await db.append_messages_batch(session, [], chunk_rows=0) == 0
    assert await db.append_messages_batch("nope", []) == 0


async def test_batch_with_an_element_that_is_no_mapping_stores_nothing(
    db: Any, session: str
) -> None:
    batch = [user("1"), user("2"), "x"]
    with pytest.raises(TypeError, match=r"messages\[2\]"):
        await db.append_messages_batch(session, batch)
    assert await counters(db, session) == (0, 0)
    with pytest.raises(TypeError, match=r"messages\[2\]"):
        await db.append_messages_batch(session, batch, chunk_rows=1)
    assert contents(await db.get_messages(session)) == ["1", "2"]
    assert await counters(db, session) == (2, 0)


async def test_batch_reads_conversation_messages(db: Any, session: str) -> None:
    message = {"role": "tool", "content": "t", "reasoning": "r", "finish_reason": "fr"}
    await db.append_messages_batch(
        session, [message | {"message_id": "M", "name": "n", "id": 7}, {"content": "x"}]
    )
    tool, unknown = await db.get_messages(session)
    assert (tool["reasoning"], tool["finish_reason"], tool["platform_message_id"]) == (
        None,
        "fr",
        "M",
    )
    assert unknown["role"] == "unknown"


@pytest.mark.parametrize("chunk_rows", [None, 1, 4])
async def test_batch_has_a_running_clock(
    db: Any, clock: Any, session: str, chunk_rows: int | None
) -> None:
    now = clock()
    times = [None, None, now + 1000, None, 5, None]
    batch = [user(str(position), timestamp=time) for position, time in enumerate(times)]
    await db.append_messages_batch(session, batch, chunk_rows=chunk_rows)
    rows = await db.get_messages(session)
    assert contents(rows) == list("012345")
    expected = [now, now + 1e-6, now + 1000, now + 1000 + 1e-6, 5.0, now + 1000 + 3e-6]
    assert [row["timestamp"] for row in rows] == pytest.approx(expected, rel=0, abs=5e-7)


@pytest.mark.parametrize("session_id", ["nope", "n\x00", "n\ud800"])
async def test_unknown_session_is_an_error_of_both_kinds(db: Any, session_id: str) -> None:
    for append in (
        db.append_message(session_id, "user", "x"),
        db.append_messages_batch(session_id, [user("x")]),
    ):
        with pytest.raises(sqlite3.IntegrityError, match="Unknown session") as caught:
            await append
        assert isinstance(caught.value, ValueError)
        assert repr(session_id) in str(caught.value)
    assert await db.message_count() == 0


async def test_read_only_store_refuses_by_name(
    session: str, open_store: Callable[..., Any]
) -> None:
    store = open_store(read_only=True)
    with pytest.raises(ReadOnlyStoreError, match="append_message:"):
        await store.append_message(session, "user", "x")
    with pytest.raises(ReadOnlyStoreError, match="append_messages_batch:"):
        await store.append_messages_batch(session, [])


async def test_tasks_append_to_one_session(db: Any, session: str) -> None:
    async def append(name: int) -> list[int]:
        return [
            await db.append_message(session, "assistant", f"{name}.{n}", tool_calls=[{"id": n}])
            for n in range(10)
        ]

    ids = await asyncio.gather(*map(append, range(5)))
    assert len(set(chain.from_iterable(ids))) == 50
    assert await counters(db, session) == (50, 50)


async def test_batch_stays_together_among_other_writers(db: Any, session: str) -> None:
    async def write(name: str) -> None:
        for _ in range(3):
            await db.append_messages_batch(session, [user(name) for _ in range(40)])

    await asyncio.gather(*map(write, "abc"))
    rows = contents(await db.get_messages(session))
    assert len(rows) == 360
    assert all(len(set(rows[start : start + 40])) == 1 for start in range(0, 360, 40))
    assert await counters(db, session) == (360, 0)


# Ids follow the order of commits: no row may appear below one that was already seen.


async def test_ids_follow_commits_of_concurrent_stores(
    db: Any, session: str, open_store: Callable[..., Any]
) -> None:
    async def write(store: Any, name: str) -> None:
        for number in range(12):
            if number % 3 == 2:
                batch = [assistant(f"{name}{number}", "1", "2"), user(f"{name}{number}")]
                await store.append_messages_batch(session, batch)
            else:
                await store.append_message(session, "user", f"{name}{number}")

    async def watch(writers: asyncio.Future[Any]) -> None:
        seen: list[int] = []
        while not writers.done():
            found = [row["id"] for row in await db.get_messages(session)]
            assert found[: len(seen)] == seen
            seen = found

    writers = asyncio.ensure_future(
        asyncio.gather(*(write(open_store(), name) for name in "abcdefgh"))
    )
    await watch(writers)
    await writers
    rows = await db.get_messages(session)
    assert len(rows) == 8 * (8 + 4 * 2)
    assert await counters(db, session) == (len(rows), 8 * 4 * 2)
    for name in "abcdefgh":
        own = [int(text[1:]) for text in contents(rows) if text[0] == name]
        assert own == sorted(own)


# Recency: the latest sign of life; the start counts only while there is none.


async def last_active(raw: Any) -> float:
    [(time,)] = await raw.fetch("SELECT last_active FROM hermes_session_recency")
    return float(time)


async def test_appends_move_recency(db: Any, raw: Any, clock: Any, session: str) -> None:
    started = clock()
    assert await last_active(raw) == started
    await db.append_message(session, "user", "older than the session", timestamp=started - 50)
    assert await last_active(raw) == started - 50
    await db.append_message(session, "user", "x", timestamp=started - 60)
    assert await last_active(raw) == started - 50
    await db.append_messages_batch(session, [user("x", timestamp=started + t) for t in (1, 9, 3)])
    assert await last_active(raw) == started + 9
    await db.append_message(session, "user", "x", timestamp=started + 2)
    assert await last_active(raw) == started + 9


async def test_first_message_does_not_hide_later_activity(
    db: Any, raw: Any, clock: Any, session: str
) -> None:
    await raw.execute("UPDATE sessions SET last_activity_at = ?", clock() + 7)
    await db.append_messages_batch(session, [user("x", timestamp=5)])
    assert await last_active(raw) == clock() + 7
