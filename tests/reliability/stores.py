"""Stores that several processes use, and whether they are sound."""

import asyncio
from collections.abc import Callable, Mapping

import pytest

from hermes_orm import SessionDB
from hermes_orm.dialects.inspection import findings_of
from hermes_orm.location import locate
from tests.contract.index_states import Index
from tests.journal import use_journal
from tests.raw import Raw
from tests.reliability.conversations import SHARED, State

PLACES = ["delete", "wal", "postgresql+asyncpg", "postgresql+psycopg"]
"""SQLite in either journal mode, and PostgreSQL by either driver."""


@pytest.fixture(params=PLACES)
def location(request: pytest.FixtureRequest, make_location: Callable[..., str]) -> str:
    """Path or DSN of a fresh store; a test that uses it runs on every one of `PLACES`."""
    if request.param.startswith("postgresql"):
        return make_location(request.param)
    path = make_location("sqlite")
    use_journal(path, request.param)
    return path


async def left_alone(raw: Raw) -> None:
    """Wait until the server has noticed that a killed process is gone."""
    others = (
        "SELECT count(*) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    async with asyncio.timeout(30):
        while raw.is_postgres and await raw.fetch(others) != [(0,)]:
            await asyncio.sleep(0.005)


async def assert_sound(location: str) -> None:
    """Check the file, its references, its search indexes, its schema and its order of sessions."""
    assert await findings_of(locate(location), lambda _: None) == []


async def assert_counted(db: SessionDB, raw: Raw, states: Mapping[str, State]) -> None:
    """Check what is counted over all sessions, and that the search index holds each message."""
    told = [text for state in states.values() for text in state.told]
    lines = sum(len(state.lines) for state in states.values())
    assert await db.message_count() == lines + len(told)
    assert await db.message_count(SHARED) == len(told)
    assert await db.session_count(include_archived=True) == 1 + sum(
        state.exists for state in states.values()
    )
    await Index(raw).check(lines + len(told))
    usage = await raw.fetch("SELECT coalesce(sum(input_tokens), 0) FROM session_model_usage")
    assert usage == [(sum(state.tokens for state in states.values()),)]
