"""Appends on PostgreSQL: what they wait for, and an index that refuses a message."""

import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import psycopg
import pytest
from sqlalchemy import make_url

from hermes_orm import SessionDB
from hermes_orm.dialects.postgresql import transcript
from hermes_orm.dialects.prepared import Prepared
from hermes_orm.errors import CompressionSessionClosedError, SessionTurnLeaseLostError
from tests.contract.turns import contents, user
from tests.dialects.others import Other, waiting


@pytest.fixture
async def db(location: str) -> AsyncIterator[SessionDB]:
    """A store with the session `s`, on whose conversation H holds a lease that has expired."""
    async with SessionDB(location) as db:
        await db.create_session("s", "cli")
        yield db


@pytest.fixture
async def other(location: str, db: SessionDB) -> AsyncIterator[Other]:
    """A connection in a transaction of its own."""
    dsn = make_url(location).set(drivername="postgresql").render_as_string(hide_password=False)
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        await connection.execute("INSERT INTO session_turn_leases VALUES ('s', 'H', 1, 2)")
        await connection.execute("BEGIN")
        yield connection


INSERT = (
    "INSERT INTO messages (session_id, role, content, timestamp) "
    "VALUES ('s', 'user', 'other', 5000000000) RETURNING id"
)
COUNT = "UPDATE sessions SET message_count = message_count + 1"
CLOSE = "UPDATE sessions SET ended_at = 1, end_reason = 'compression'"
TAKE_OVER = "UPDATE session_turn_leases SET holder = 'I'"

APPENDS: list[Callable[..., Any]] = [
    lambda db, **claim: db.append_message("s", "user", "x", **claim),
    lambda db, **claim: db.append_messages_batch("s", [user("x")], **claim),
]
each_append = pytest.mark.parametrize("append", APPENDS, ids=["single", "batch"])
each_claim = pytest.mark.parametrize("claim", [{}, {"turn_lease_holder": "H"}], ids=["", "lease"])


@each_append
@each_claim
async def test_ids_are_drawn_after_the_session_is_locked(
    db: SessionDB, other: Other, append: Any, claim: Any
) -> None:
    await other.execute(COUNT)
    task = await waiting(other, append(db, **claim))
    row = await (await other.execute(INSERT)).fetchone()
    recency = "UPDATE hermes_session_recency SET last_active = 5000000000"
    await other.execute(recency)
    await other.execute("COMMIT")
    await task
    rows = await db.get_messages("s")
    assert row is not None
    assert contents(rows) == ["other", "x"]
    assert rows[0]["id"] == row[0] < rows[1]["id"]
    session = await db.get_session("s")
    assert session is not None
    assert session["message_count"] == 2
    cursor = await other.execute("SELECT last_active FROM hermes_session_recency")
    assert await cursor.fetchone() == (5e9,), "a message that was not seen at first counts, too"


@each_append
@each_claim
async def test_a_session_that_is_closed_meanwhile_refuses(
    db: SessionDB, other: Other, append: Any, claim: Any
) -> None:
    await other.execute(CLOSE)
    task = await waiting(other, append(db, **claim))
    await other.execute("COMMIT")
    with pytest.raises(CompressionSessionClosedError):
        await task
    cursor = await other.execute("SELECT expires_at FROM session_turn_leases")
    assert await cursor.fetchone() == (2.0,)


@each_append
async def test_a_lease_that_is_taken_over_meanwhile_is_lost(
    db: SessionDB, other: Other, append: Any
) -> None:
    await other.execute(TAKE_OVER)
    task = await waiting(other, append(db, turn_lease_holder="H"))
    await other.execute("COMMIT")
    with pytest.raises(SessionTurnLeaseLostError):
        await task
    assert await db.get_messages("s") == []


@each_append
async def test_a_lease_whose_takeover_failed_is_renewed(
    db: SessionDB, other: Other, append: Any
) -> None:
    await other.execute(TAKE_OVER)
    task = await waiting(other, append(db, turn_lease_holder="H"))
    await other.execute("ROLLBACK")
    await task
    cursor = await other.execute(
        "SELECT expires_at - extract(epoch FROM now()) > 200 FROM session_turn_leases"
    )
    assert await cursor.fetchone() == (True,)


@each_append
async def test_a_refusal_whose_reason_has_gone_is_tried_again(
    db: SessionDB, monkeypatch: pytest.MonkeyPatch, append: Any
) -> None:
    refusals = [None]
    send = transcript._append

    def refused_once(*arguments: Any, **options: Any) -> int | None:
        return refusals.pop() if refusals else send(*arguments, **options)

    monkeypatch.setattr(transcript, "_append", refused_once)
    await append(db)
    assert contents(await db.get_messages("s")) == ["x"]


# The search index may refuse a message; the transcript may not


@each_append
@each_claim
@pytest.mark.parametrize("on_driver", [True, False])
async def test_a_message_that_cannot_be_indexed_is_stored(
    db: SessionDB,
    other: Other,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    append: Any,
    claim: Any,
    on_driver: bool,
) -> None:
    monkeypatch.setattr(Prepared, "on_driver", on_driver)
    too_long = "secret" * 1000
    monkeypatch.setattr(transcript, "tsvector_text", lambda *_: (f"'{too_long}'", 1))
    with caplog.at_level(logging.WARNING):
        await append(db, **claim)
    assert "search index" in caplog.text
    assert "secret" not in caplog.text
    assert contents(await db.get_messages("s")) == ["x"]
    await other.execute("COMMIT")
    cursor = await other.execute("SELECT vec::text, doc_len FROM message_search")
    assert await cursor.fetchall() == [("", 0)]
    session = await db.get_session("s")
    assert session is not None
    assert session["message_count"] == 1


async def test_search_rows_belong_to_their_messages(db: SessionDB, other: Other) -> None:
    await db.append_message("s", "user", [{"type": "text", "text": "alpha"}])
    words = [user(f"word{number}") for number in range(50)]
    await db.append_messages_batch("s", [*words, user([{"type": "text", "text": "omega"}])])
    cursor = await other.execute(
        "SELECT content, vec::text, doc_len, search_text FROM messages "
        "JOIN message_search ON message_id = id ORDER BY id"
    )
    first, *rows, last = await cursor.fetchall()
    assert first[1:] == ("'alpha':1", 1, "alpha")
    assert rows == [(f"word{n}", f"'word{n}':1", 1, None) for n in range(50)]
    assert last[1:] == ("'omega':1", 1, "omega")
