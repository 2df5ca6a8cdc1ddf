"""Who may append: turn leases and closed sessions, messages.md sections 4, 11 and 19."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from hermes_orm.errors import (
    CompressionSessionClosedError,
    SessionTurnLeaseLostError,
    UnknownSessionError,
)
from tests.contract.turns import contents, user

APPENDS: list[Callable[..., Awaitable[Any]]] = [
    lambda db, session, **claim: db.append_message(session, "user", "x", **claim),
    lambda db, session, **claim: db.append_messages_batch(session, [user("x")], **claim),
]
each_append = pytest.mark.parametrize("append", APPENDS, ids=["single", "batch"])


async def give_lease(raw: Any, conversation: str, holder: str, seconds: float = 60) -> None:
    now = time.time()
    await raw.execute(
        "INSERT INTO session_turn_leases (conversation_id, holder, acquired_at, expires_at) "
        "VALUES (?, ?, ?, ?)",
        conversation,
        holder,
        now,
        now + seconds,
    )


async def expiry(raw: Any) -> float:
    [(time,)] = await raw.fetch("SELECT expires_at FROM session_turn_leases")
    return float(time)


# Leases


@each_append
async def test_only_the_holder_and_writers_without_claim_pass(
    db: Any, raw: Any, session: str, append: Any
) -> None:
    await give_lease(raw, session, "H")
    before = await expiry(raw)
    await append(db, session, turn_lease_holder="H")
    await append(db, session, turn_lease_holder="")
    await append(db, session)
    for holder in ("I", "h", "H\x00"):
        with pytest.raises(SessionTurnLeaseLostError, match="turn lease lost for 's'"):
            await append(db, session, turn_lease_holder=holder)
    assert await expiry(raw) == before, "a live lease is not touched"
    assert (await db.get_session(session))["message_count"] == 3


@each_append
async def test_nobody_holds_what_nobody_acquired(db: Any, session: str, append: Any) -> None:
    with pytest.raises(SessionTurnLeaseLostError):
        await append(db, session, turn_lease_holder="H")
    assert await db.get_messages(session) == []


@each_append
@pytest.mark.parametrize(("ttl", "lasts"), [(50, 50), (0, 0.1), (-5, 0.1)])
async def test_own_expired_lease_is_renewed(
    db: Any, raw: Any, session: str, append: Any, ttl: float, lasts: float
) -> None:
    await give_lease(raw, session, "H", -5)
    await append(db, session, turn_lease_holder="H", turn_lease_ttl_seconds=ttl)
    assert await expiry(raw) == pytest.approx(time.time() + lasts, abs=4)


@each_append
async def test_a_refused_append_renews_nothing(
    db: Any, raw: Any, session: str, append: Any
) -> None:
    await give_lease(raw, session, "H", -5)
    before = await expiry(raw)
    with pytest.raises(SessionTurnLeaseLostError):
        await append(db, session, turn_lease_holder="I")
    await db.end_session(session, "compression")
    with pytest.raises(CompressionSessionClosedError):
        await append(db, session, turn_lease_holder="H")
    assert await expiry(raw) == before


@each_append
async def test_compression_lock_is_no_guard(db: Any, raw: Any, session: str, append: Any) -> None:
    await raw.execute(
        "INSERT INTO compression_locks (session_id, holder, acquired_at, expires_at) "
        "VALUES ('s', 'A', 1, 9999999999)"
    )
    await append(db, session, compression_lock_holder="B")
    await append(db, session)


# Which session a lease belongs to: the root of its chain of continuations


async def continue_session(db: Any, parent: str, child: str, **fields: Any) -> None:
    await db.end_session(parent, "compression")
    await db.create_session(child, "cli", parent_session_id=parent, **fields)


@each_append
async def test_segments_of_a_conversation_share_the_lease_of_its_root(
    db: Any, raw: Any, session: str, append: Any
) -> None:
    for parent, child in ("sa", "ab", "bc"):
        await continue_session(db, parent, child)
    await give_lease(raw, "s", "H")
    await append(db, "c", turn_lease_holder="H")
    with pytest.raises(CompressionSessionClosedError):
        await append(db, "b", turn_lease_holder="H")


@pytest.mark.parametrize(
    ("source", "config"),
    [
        ("cli", {"_branched_from": "s"}),
        ("cli", {"_delegate_from": "s"}),
        ("cli", {"_reset_from": "other"}),
        ("tool", {}),
    ],
)
async def test_forks_have_a_lease_of_their_own(
    db: Any, raw: Any, session: str, source: str, config: dict[str, str]
) -> None:
    await db.end_session(session, "compression")
    await db.create_session("f", source, parent_session_id=session, model_config=config)
    await give_lease(raw, session, "H")
    await give_lease(raw, "f", "F")
    await db.append_message("f", "user", "x", turn_lease_holder="F")
    with pytest.raises(SessionTurnLeaseLostError):
        await db.append_message("f", "user", "x", turn_lease_holder="H")


async def test_child_of_an_uncompressed_session_has_a_lease_of_its_own(
    db: Any, raw: Any, session: str
) -> None:
    await db.create_session("c", "cli", parent_session_id=session)
    await give_lease(raw, session, "H")
    with pytest.raises(SessionTurnLeaseLostError):
        await db.append_message("c", "user", "x", turn_lease_holder="H")


async def test_inherited_markers_do_not_break_the_chain(db: Any, raw: Any, session: str) -> None:
    marker = {"_delegate_from": session}
    await db.create_session("d", "cli", parent_session_id=session, model_config=marker)
    await continue_session(db, "d", "e", model_config=marker)
    await continue_session(db, "e", "f", model_config={**marker, "more": "\ud800\x00"})
    await give_lease(raw, "d", "H")
    await db.append_message("f", "user", "x", turn_lease_holder="H")


async def test_malformed_config_is_no_marker(db: Any, raw: Any, session: str) -> None:
    await continue_session(db, session, "c")
    await raw.execute(
        """UPDATE sessions SET model_config = '{"_delegate_from": bad' WHERE id = 'c'"""
    )
    await give_lease(raw, session, "H")
    await db.append_message("c", "user", "x", turn_lease_holder="H")


async def test_a_ring_of_parents_ends(db: Any, raw: Any, session: str) -> None:
    await continue_session(db, session, "a")
    await continue_session(db, "a", "b")
    await raw.execute("UPDATE sessions SET end_reason = 'compression', ended_at = NULL")
    await raw.execute("UPDATE sessions SET parent_session_id = 'b' WHERE id = 's'")
    await give_lease(raw, "a", "H")
    for conversation in ("a", "b", "s"):
        await db.append_message(conversation, "user", "x", turn_lease_holder="H")
    await raw.execute("UPDATE sessions SET parent_session_id = 's' WHERE id = 's'")
    await give_lease(raw, "s", "S")
    await db.append_message("s", "user", "x", turn_lease_holder="S")


async def test_a_chain_of_a_thousand_segments(db: Any, raw: Any, session: str) -> None:
    await raw.execute("UPDATE sessions SET ended_at = 1, end_reason = 'compression'")
    await raw.execute(
        "INSERT INTO sessions (id, source, started_at, ended_at, end_reason, parent_session_id) "
        "WITH RECURSIVE segment(n) AS "
        "(SELECT 1 UNION ALL SELECT n + 1 FROM segment WHERE n < 1000) "
        "SELECT 's' || n, 'cli', 1, 1, CASE WHEN n < 1000 THEN 'compression' END, "
        "CASE WHEN n = 1 THEN 's' ELSE 's' || (n - 1) END FROM segment"
    )
    await give_lease(raw, session, "H")
    await db.append_message("s1000", "user", "x", turn_lease_holder="H")


# Closed sessions


@each_append
async def test_compressed_session_is_closed(db: Any, session: str, append: Any) -> None:
    await db.end_session(session, "compression")
    with pytest.raises(
        CompressionSessionClosedError, match="'s' was closed by compression"
    ) as caught:
        await append(db, session)
    assert caught.value.session_id == session
    assert await db.append_messages_batch(session, []) == 0
    assert await db.get_messages(session) == []
    assert (await db.get_session(session))["message_count"] == 0


async def test_reason_without_end_closes_nothing(db: Any, raw: Any, session: str) -> None:
    await raw.execute("UPDATE sessions SET end_reason = 'compression'")
    await db.append_message(session, "user", "x")


@each_append
async def test_lease_is_checked_first_and_the_session_last(
    db: Any, raw: Any, session: str, append: Any
) -> None:
    await db.end_session(session, "compression")
    for session_id in (session, "nope", "n\x00"):
        with pytest.raises(SessionTurnLeaseLostError):
            await append(db, session_id, turn_lease_holder="H")
    await give_lease(raw, "nope", "H")
    with pytest.raises(UnknownSessionError):
        await append(db, "nope", turn_lease_holder="H")


async def test_chunks_repeat_the_guards(db: Any, raw: Any, session: str) -> None:
    await give_lease(raw, session, "H")

    class Batch(list[Any]):
        """Loses the lease while its third message is read."""

        def __iter__(self) -> Any:
            for position, message in enumerate(super().__iter__()):
                if position == 2:
                    raw._execute("DELETE FROM session_turn_leases", ())
                yield message

    batch = Batch(user(str(number)) for number in range(4))
    with pytest.raises(SessionTurnLeaseLostError):
        await db.append_messages_batch(session, batch, chunk_rows=2, turn_lease_holder="H")
    assert contents(await db.get_messages(session)) == ["0", "1"]


# PostgreSQL waits for the lease's row, and then sees who has it


async def test_takeover_and_append_exclude_each_other(db: Any, raw: Any, session: str) -> None:
    await give_lease(raw, session, "H", -5)
    holders: list[str] = []

    async def append(number: int) -> None:
        try:
            await db.append_message(session, "user", str(number), turn_lease_holder="H")
        except SessionTurnLeaseLostError:
            holders.append("lost")
        else:
            holders.append("kept")

    take_over = "UPDATE session_turn_leases SET holder = 'I' WHERE expires_at < ?"
    await asyncio.gather(append(1), raw.execute(take_over, time.time()), append(2))
    [(holder,)] = await raw.fetch("SELECT holder FROM session_turn_leases")
    assert holders == (["lost"] * 2 if holder == "I" else ["kept"] * 2)
    assert len(await db.get_messages(session)) == holders.count("kept")
