"""Changes of sessions on PostgreSQL: what they wait for, and what they see then."""

import asyncio
from collections.abc import AsyncIterator

import psycopg
import pytest
from sqlalchemy import make_url

from hermes_orm import SessionDB
from hermes_orm.repositories.sessions.prompts import prompt_hash
from tests.dialects.others import Other, waiting

HASH = prompt_hash("P")


@pytest.fixture
async def db(location: str) -> AsyncIterator[SessionDB]:
    """A store with the session `a`, and `b` that has the prompt `P`."""
    async with SessionDB(location) as db:
        await db.create_session("a", "cli")
        await db.create_session("b", "cli", system_prompt="P")
        yield db


@pytest.fixture
async def other(location: str, db: SessionDB) -> AsyncIterator[Other]:
    """A connection in a transaction of its own."""
    dsn = make_url(location).set(drivername="postgresql").render_as_string(hide_password=False)
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        await connection.execute("BEGIN")
        yield connection


async def prompt_of(db: SessionDB, session_id: str) -> str | None:
    row = await db.get_session(session_id)
    return row and row["system_prompt"]


# Example 84 of sessions.md


async def test_prompt_that_vanishes_is_stored_again(db: SessionDB, other: Other) -> None:
    await other.execute("UPDATE sessions SET system_prompt_hash = NULL WHERE id = 'b'")
    await other.execute("SELECT 1 FROM system_prompts WHERE hash = %s FOR UPDATE", [HASH])
    storing = await waiting(other, db.update_system_prompt("a", "P"))
    await other.execute("DELETE FROM system_prompts WHERE hash = %s", [HASH])
    await other.execute("COMMIT")
    await storing
    assert await prompt_of(db, "a") == "P"


async def test_prompt_that_is_just_stored_is_not_swept(db: SessionDB, other: Other) -> None:
    await other.execute("SELECT 1 FROM system_prompts WHERE hash = %s FOR KEY SHARE", [HASH])
    await db.update_system_prompt("b", None)
    await other.execute("UPDATE sessions SET system_prompt_hash = %s WHERE id = 'a'", [HASH])
    await other.execute("COMMIT")
    assert (await prompt_of(db, "a"), await prompt_of(db, "b")) == ("P", None)


async def test_patch_adds_to_what_it_waited_for(db: SessionDB, other: Other) -> None:
    await other.execute("""UPDATE sessions SET model_config = '{"x": 1}' WHERE id = 'a'""")
    patching = await waiting(other, db.patch_session_model_config("a", {"y": 2}))
    await other.execute("COMMIT")
    await patching
    assert await db.get_session_model_config_value("a", "x") == 1
    assert await db.get_session_model_config_value("a", "y") == 2


async def test_lock_that_is_just_renewed_keeps_an_orphan_closed(
    db: SessionDB, other: Other
) -> None:
    await db.end_session("a", "compression")
    await other.execute("INSERT INTO compression_locks VALUES ('a', 'H', 1, 2)")
    await other.execute("COMMIT")
    await other.execute("BEGIN")
    await other.execute("UPDATE compression_locks SET expires_at = 1e11")
    reopening = await waiting(other, db.reopen_orphaned_compression_session("a"))
    await other.execute("COMMIT")
    assert await reopening is False
    row = await db.get_session("a")
    assert row is not None and row["end_reason"] == "compression"


async def test_two_repairs_of_all_orphans_end_each_once(db: SessionDB, other: Other) -> None:
    await db.end_session("a", "compression")
    await other.execute(
        "INSERT INTO sessions (id, source, started_at, parent_session_id) "
        "SELECT 'c' || n, 'cli', 1, 'a' FROM generate_series(1, 9) n"
    )
    await other.execute(
        "INSERT INTO messages (session_id, role, timestamp) "
        "SELECT id, 'user', 1 FROM sessions WHERE id LIKE 'c%'"
    )
    await other.execute("COMMIT")
    ended = await asyncio.gather(*(db.finalize_orphaned_compression_sessions() for _ in range(3)))
    assert sum(ended) == 9
