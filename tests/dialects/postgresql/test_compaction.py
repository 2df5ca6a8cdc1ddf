"""Compaction and rotation on PostgreSQL: nothing is read before the session is locked."""

from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest
from sqlalchemy import make_url

from hermes_orm import SessionDB
from hermes_orm.errors import (
    CompressionSessionBusyError,
    CompressionSessionClosedError,
    SessionCompressionInProgressError,
)
from tests.contract.turns import contents, user
from tests.dialects.others import Other, waiting


@pytest.fixture
async def db(location: str) -> AsyncIterator[SessionDB]:
    """A store with the session `s`, whose compression lock is A's."""
    async with SessionDB(location) as db:
        await db.create_session("s", "cli")
        await db.append_message("s", "user", "early")
        await db.try_acquire_compression_lock("s", "A")
        yield db


@pytest.fixture
async def other(location: str, db: SessionDB) -> AsyncIterator[Other]:
    """A connection in a transaction of its own."""
    dsn = make_url(location).set(drivername="postgresql").render_as_string(hide_password=False)
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        await connection.execute("BEGIN")
        yield connection


COUNT = "UPDATE sessions SET message_count = message_count + 1"
INSERT = "INSERT INTO messages (session_id, role, content, timestamp) VALUES ('s','user','late',1)"
CLOSE = "UPDATE sessions SET ended_at = 1, end_reason = 'compression'"
TAKE_OVER = "UPDATE compression_locks SET holder = 'B'"


async def compact(db: SessionDB) -> None:
    await db.archive_and_compact("s", [user("sum")], watermark=1, lock_holder="A")


async def publish(db: SessionDB) -> None:
    await db.publish_compression_child(
        parent_session_id="s",
        child_session_id="c",
        source="cli",
        messages=[user("sum")],
        compression_lock_holder="A",
        watermark=1,
    )


@pytest.mark.parametrize(("operation", "session"), [(compact, "s"), (publish, "c")])
async def test_append_that_has_begun_is_copied(
    db: SessionDB, other: Other, operation: Any, session: str
) -> None:
    await other.execute(COUNT)
    task = await waiting(other, operation(db))
    await other.execute(INSERT)
    await other.execute("COMMIT")
    await task
    assert contents(await db.get_messages(session)) == ["sum", "late"]


@pytest.mark.parametrize(
    ("operation", "error"),
    [(compact, CompressionSessionClosedError), (publish, RuntimeError)],
)
async def test_end_that_comes_first_is_seen(
    db: SessionDB, other: Other, operation: Any, error: type[Exception]
) -> None:
    await other.execute(CLOSE)
    task = await waiting(other, operation(db))
    await other.execute("COMMIT")
    with pytest.raises(error, match=r"closed by compression|already ended"):
        await task
    assert contents(await db.get_messages("s")) == ["early"]


@pytest.mark.parametrize(
    ("operation", "error"),
    [(compact, SessionCompressionInProgressError), (publish, CompressionSessionBusyError)],
)
async def test_takeover_that_comes_first_is_seen(
    db: SessionDB, other: Other, operation: Any, error: type[Exception]
) -> None:
    await other.execute(TAKE_OVER)
    task = await waiting(other, operation(db))
    await other.execute("COMMIT")
    with pytest.raises(error):
        await task
    assert contents(await db.get_messages("s")) == ["early"]


async def test_takeover_of_a_lock_waits_for_who_acquired_it(db: SessionDB, other: Other) -> None:
    await other.execute("INSERT INTO compression_locks VALUES ('t', 'A', 1, 9e9)")
    task = await waiting(other, db.try_acquire_compression_lock("t", "B"))
    await other.execute("COMMIT")
    assert await task is False
    assert await db.get_compression_lock_holder("t") == "A"
