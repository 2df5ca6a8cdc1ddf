"""A store finishes an index that was left to later by itself, while it is open."""

import asyncio
from collections.abc import Callable

import pytest

from hermes_orm import SessionDB, database
from hermes_orm.repositories.search import indexing as steps
from hermes_orm.services import indexing
from tests.contract.index_states import Index

MESSAGES = 8


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "FOLLOW_SECONDS", 60)
    monkeypatch.setattr(indexing, "PAUSE_PER_STEP", 0)
    monkeypatch.setattr(steps, "STEP_IDS", 1)


async def test_an_open_store_finishes_its_index(
    left: None,
    db: SessionDB,
    index: Index,
    open_store: Callable[..., SessionDB],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await db.create_session("s", "cli")
    for n in range(MESSAGES):
        await db.append_message("s", "user", f"needle {n}")
    await index.lose(range(1, MESSAGES + 1), high_water=MESSAGES, progress=0)
    monkeypatch.setattr(database, "FOLLOW_SECONDS", 0)

    monkeypatch.setattr(indexing, "LEAST_PAUSE_SECONDS", 60)  # it rests after its first step
    resting = open_store()
    await resting.message_count()
    while (await reached(db)) == 0:
        await asyncio.sleep(0.01)
    await resting.close()
    assert await reached(db) == 1

    monkeypatch.setattr(indexing, "LEAST_PAUSE_SECONDS", 0)
    reader = open_store(read_only=True)
    assert await reader.message_count() == MESSAGES
    await open_store().message_count()
    while await db.fts_rebuild_status() is not None:
        await asyncio.sleep(0.01)
    await index.check(MESSAGES)


async def reached(db: SessionDB) -> int:
    """Return up to which message the index is made."""
    status = await db.fts_rebuild_status()
    assert status is not None
    return status["indexed"]
