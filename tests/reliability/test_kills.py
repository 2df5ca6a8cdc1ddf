"""A writer is killed at any moment: what it was told to be stored is stored, once and in order.

`pytest -m full tests/reliability/test_kills.py` kills 200 of them on each database.
"""

import asyncio
import logging
import os
import signal
import time
from collections import Counter
from multiprocessing.connection import Connection
from random import Random
from typing import Any

import pytest

from hermes_orm import SessionDB
from tests.raw import Raw
from tests.reliability.conversations import SHARED, Conversation, State, stored, told_in
from tests.reliability.steps import WRITING
from tests.reliability.stores import assert_counted, assert_sound, left_alone, location
from tests.reliability.workers import WARM_STEPS, Workers, answer, write

__all__ = ["location"]

logger = logging.getLogger(__name__)

TALKS = 3
"""Conversations that a writer carries on at the same time: some commits serve several of them."""


@pytest.mark.parametrize("kills", [5, pytest.param(200, marks=pytest.mark.full)])
async def test_a_killed_writer_loses_nothing_that_was_acknowledged(
    location: str, raw: Raw, kills: int
) -> None:
    unacknowledged = 0
    async with SessionDB(location) as db:
        await db.create_session(SHARED, "cli")
    states = {"warm": Conversation("warm", WRITING).replay(WARM_STEPS)[0]}
    with Workers(write, [(location,)]) as workers:
        for kill in range(kills):
            names = [f"k{kill:03}t{talk}" for talk in range(TALKS)]
            acknowledged = await asyncio.to_thread(kill_writer, workers.lines[0], names)
            await left_alone(raw)
            async with SessionDB(location) as db:
                told = await told_in(db)
                for name in names:
                    before, after = Conversation(name, WRITING).replay(acknowledged[name])
                    states[name] = await stored(db, name, told[name])
                    assert states[name] in (before, after), (name, acknowledged[name])
                    unacknowledged += states[name] != before
            if kill % 10 == 9:
                await assert_sound(location)
    await assert_sound(location)
    async with SessionDB(location) as db:
        told = await told_in(db)
        assert {name: await stored(db, name, told[name]) for name in states} == states
        await assert_counted(db, raw, states)
        await assert_nothing_is_held(db, raw, states)
    logger.info("%d killed, %d steps done but not acknowledged", kills, unacknowledged)


def kill_writer(line: Connection, names: list[str]) -> Counter[str]:
    """Kill a writer amid its work; return how many steps of each conversation it acknowledged."""
    random = Random()
    steps: Counter[str] = Counter()
    line.send(names)
    process_id = answer(line)
    for _ in range(random.randint(0, 60)):
        steps[answer(line)] += 1
    time.sleep(random.random() * 0.01)
    os.kill(process_id, signal.SIGKILL)
    while name := answer(line):
        steps[name] += 1
    return steps


async def assert_nothing_is_held(db: SessionDB, raw: Raw, states: dict[str, State]) -> None:
    """Check that what dead writers held can be had: on SQLite at once, else when it is over."""
    if raw.is_postgres:
        for table in ("session_turn_leases", "compression_locks"):
            await raw.execute(f"UPDATE {table} SET expires_at = expires_at - 300")
    for name in (name for name, state in states.items() if state.exists):
        for held in (db.try_acquire_session_turn_lease, db.try_acquire_compression_lock):
            acquire: Any = held
            assert await acquire(name, "heir"), name
        await db.append_message(name, "user", "goes on", turn_lease_holder="heir")
