"""Completing what the adoption of a large file has left to later."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from hermes_orm.database import Database
from hermes_orm.repositories.messages.leftovers import LeftoverRepository

A = TypeVar("A")
T = TypeVar("T")

PAUSE_SECONDS: Final = 0.2
"""After a step, in which nobody else can write."""


async def finish_leftovers(database: Database) -> None:
    """Build missing indexes of messages, and give an id to each message that has none.

    A crash leaves the rest to the next opening.
    """
    if await database.read(lambda tx: LeftoverRepository(tx).are_complete(), scope="statement"):
        return
    for index in await database.read(lambda tx: LeftoverRepository(tx).missing_indexes()):
        await _step(database, LeftoverRepository.create, index)
    after_id: int | None = -1
    while after_id is not None:
        after_id = await _step(database, LeftoverRepository.give_uids, after_id)


async def _step(database: Database, work: Callable[[LeftoverRepository, A], T], of: A) -> T:
    result = await database.write(lambda tx: work(LeftoverRepository(tx), of), alone=True)
    await asyncio.sleep(PAUSE_SECONDS)
    return result
