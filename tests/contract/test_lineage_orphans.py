"""Continuations that live, never came, or never began: sessions.md section 9."""

import asyncio
from typing import Any

import pytest
from sqlalchemy import text

from hermes_orm.errors import CompressionSessionClosedError
from tests.contract.stories import Story

LIVE, EXPIRED = 1e11, 1.0
"""Times of expiry for every clock: locks go by the server's on PostgreSQL."""


async def lock(raw: Any, session_id: str, expires_at: float) -> None:
    await raw.execute(
        "INSERT INTO compression_locks VALUES (?, 'holder', 1.0, ?)", session_id, expires_at
    )


async def locks(raw: Any) -> int:
    return int((await raw.fetch("SELECT count(*) FROM compression_locks"))[0][0])


async def reason_of(db: Any, session_id: str) -> Any:
    return (await db.get_session(session_id))["end_reason"]


@pytest.fixture
async def compressed(db: Any) -> str:
    """The id of a compressed session that nothing carries on."""
    await db.create_session("p", "cli")
    await db.end_session("p", "compression")
    return "p"


# Example 46


async def test_live_child_is_the_only_open_one(db: Any, compressed: str) -> None:
    find = db.find_live_compression_child
    assert await find("p") is None
    await db.create_session("c", "cli", parent_session_id="p", system_prompt="P")
    branch = {"_branched_from": "p"}
    await db.create_session("b", "cli", parent_session_id="p", model_config=branch)
    assert await find("p") == await db.get_session("c")
    await db.create_session("c2", "cli", parent_session_id="p")
    assert await find("p") is None
    await db.end_session("c", "done")
    assert (await find("p"))["id"] == "c2"
    await db.end_session("c2", "done")
    assert await find("p") is None


async def test_live_child_needs_an_ended_parent(db: Any, raw: Any, compressed: str) -> None:
    await db.create_session("c", "cli", parent_session_id="p")
    await raw.execute("UPDATE sessions SET ended_at = NULL WHERE id = 'p'")
    assert await db.find_live_compression_child("p") is None
    await db.reopen_session("p")
    await db.end_session("p", "done")
    assert await db.find_live_compression_child("p") is None


# Example 47, G1


async def test_orphan_is_reopened_once_its_lock_has_expired(
    db: Any, raw: Any, compressed: str
) -> None:
    await lock(raw, "p", LIVE)
    await lock(raw, "other", EXPIRED)
    assert await db.reopen_orphaned_compression_session("p") is False
    assert await reason_of(db, "p") == "compression" and await locks(raw) == 2
    await raw.execute("UPDATE compression_locks SET expires_at = ?", EXPIRED)
    assert await db.reopen_orphaned_compression_session("p") is True
    row = await db.get_session("p")
    assert (row["ended_at"], row["end_reason"]) == (None, None)
    assert await raw.fetch("SELECT session_id FROM compression_locks") == [("other",)]
    assert await db.reopen_orphaned_compression_session("p") is False


async def test_reopened_orphan_takes_messages_again(db: Any, compressed: str) -> None:
    with pytest.raises(CompressionSessionClosedError):
        await db.append_message("p", "user", "hi")
    assert await db.reopen_orphaned_compression_session("p") is True
    await db.append_message("p", "user", "hi")


@pytest.mark.parametrize("end", [None, "done", "compression"])
async def test_session_that_was_carried_on_stays_closed(
    db: Any, raw: Any, compressed: str, end: str | None
) -> None:
    await db.create_session("c", "cli", parent_session_id="p")
    await lock(raw, "p", EXPIRED)
    if end:
        await db.end_session("c", end)
    assert await db.reopen_orphaned_compression_session("p") is False
    assert await reason_of(db, "p") == "compression" and await locks(raw) == 1


async def test_forks_are_no_successors(db: Any, compressed: str) -> None:
    for number, fork in enumerate(["_branched_from", "_delegate_from", "_reset_from"]):
        await db.create_session(
            f"c{number}", "cli", parent_session_id="p", model_config={fork: "p"}
        )
    await db.create_session("t", "tool", parent_session_id="p")
    assert await db.reopen_orphaned_compression_session("p") is True


async def test_only_compressed_sessions_are_reopened(db: Any, raw: Any, session: str) -> None:
    for unknown in (session, "nope", "", None, "a\0", "a\ud800"):
        assert await db.reopen_orphaned_compression_session(unknown) is False
    await db.end_session(session, "idle")
    assert await db.reopen_orphaned_compression_session(session) is False
    await raw.execute("UPDATE sessions SET ended_at = NULL, end_reason = 'compression'")
    assert await db.reopen_orphaned_compression_session(session) is False


async def test_session_is_not_reopened_while_its_child_is_being_written(
    db: Any, raw: Any, compressed: str
) -> None:
    await db.get_session("p")
    with raw.engine.connect() as connection:
        if not raw.is_postgres:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        connection.execute(
            text(
                "INSERT INTO sessions (id, source, started_at, parent_session_id) "
                "VALUES ('c', 'cli', 1, 'p')"
            )
        )
        reopening = asyncio.create_task(db.reopen_orphaned_compression_session("p"))
        await asyncio.sleep(0.3)
        assert not reopening.done()
        connection.commit()
    assert await reopening is False
    assert await reason_of(db, "p") == "compression"


async def test_session_is_reopened_or_carried_on(
    db: Any, open_store: Any, raw: Any, compressed: str
) -> None:
    other = open_store()
    for number in range(10):
        await db.end_session("p", "compression")
        child = f"c{number}"
        reopened, _ = await asyncio.gather(
            db.reopen_orphaned_compression_session("p"),
            other.create_session(child, "cli", parent_session_id="p"),
        )
        assert reopened == (await reason_of(db, "p") is None)
        await raw.execute("UPDATE sessions SET parent_session_id = NULL WHERE id = ?", child)
        await db.reopen_session("p")


# Example 48


async def test_old_continuations_that_never_began_are_ended(db: Any, raw: Any, clock: Any) -> None:
    story, now = Story(raw), clock()
    old, recent = now - 8 * 86_400, now - 6 * 86_400
    await story.new("p", old - 1)
    await story.end("p", "compression", old)
    await story.new("open", old - 1)
    children: dict[str, dict[str, Any]] = {
        "orphan": {},
        "counted": {"message_count": 0},
        "used": {"api_call_count": 1},
        "unknown": {"api_call_count": None},
        "recent": {"at": recent},
        "ended": {"ended_at": old},
        "reasoned": {"end_reason": "x"},
        "branch": {"config": {"_branched_from": "p"}},
        "delegate": {"config": {"_delegate_from": "p"}},
        "plain": {"parent": "open"},
    }
    for session_id, columns in children.items():
        await story.new(session_id, **{"at": old, "parent": "p", **columns})
        await story.msg(session_id, "hi", old, active=0)
    await story.new("empty", old, parent="p", message_count=3)
    assert await db.finalize_orphaned_compression_sessions() == 2
    found = await raw.fetch(
        "SELECT id, ended_at FROM sessions WHERE end_reason = 'orphaned_compression' ORDER BY id"
    )
    assert found == [("counted", now), ("orphan", now)]
    assert await db.message_count("orphan") == 1
    assert await db.finalize_orphaned_compression_sessions() == 0


async def test_a_week_is_not_more_than_a_week(db: Any, raw: Any, clock: Any) -> None:
    story = Story(raw)
    await story.new("p", 1)
    await story.end("p", "compression", 2)
    await story.new("c", clock() - 604_800, parent="p")
    await story.msg("c")
    assert await db.finalize_orphaned_compression_sessions() == 0
    clock.advance(1)
    assert await db.finalize_orphaned_compression_sessions() == 1
