"""Many processes do everything to one store at once: nobody meets an error, no change is lost.

With a current SQLite library: `pip install -e '.[sqlite]'`, then
`pytest -m full tests/reliability/test_load.py`; the store takes that library by itself.
"""

import asyncio
import logging
from collections import Counter
from typing import Any

import pytest

from hermes_orm import SessionDB
from tests.raw import Raw
from tests.reliability.conversations import SHARED, Conversation, stored, told_in
from tests.reliability.steps import COUNTER, MIXED, Count
from tests.reliability.stores import assert_counted, assert_sound, location
from tests.reliability.workers import Workers, mix

__all__ = ["location"]

logger = logging.getLogger(__name__)

TALKS = 4
"""Conversations that a process carries on at the same time."""


@pytest.mark.parametrize(
    ("processes", "operations"), [(2, 200), pytest.param(8, 500, marks=pytest.mark.full)]
)
async def test_processes_lose_no_update_of_each_other(
    location: str, raw: Raw, processes: int, operations: int
) -> None:
    steps = operations // TALKS
    names = [[f"p{process}t{talk}" for talk in range(TALKS)] for process in range(processes)]
    async with SessionDB(location) as db:
        await db.create_session(SHARED, "cli")
    refused = await asyncio.to_thread(work, [(location, own, steps) for own in names])
    talks = [Conversation(name, MIXED) for own in names for name in own]
    counted = sum(count_in(talk, steps) for talk in talks)
    async with SessionDB(location) as db:
        told = await told_in(db)
        for talk in talks:
            assert await stored(db, talk.name, told[talk.name]) == talk.state
        assert int(await db.get_meta(COUNTER) or 0) == counted
        await assert_counted(db, raw, {talk.name: talk.state for talk in talks})
    await assert_sound(location)
    logger.info("%d operations, refused: %s", len(talks) * steps, dict(refused))


def work(arguments: list[tuple[Any, ...]]) -> Counter[str]:
    """Have workers do it; return what was refused."""
    with Workers(mix, arguments) as workers:
        return sum(workers.answers(), start=Counter())


def count_in(talk: Conversation, steps: int) -> int:
    """Take the steps that a worker has taken; return how many of them counted."""
    counts = 0
    while talk.steps < steps:
        step = talk.next()
        counts += isinstance(step, Count)
        talk.take(step)
    return counts
