"""Giving every message an id, where the adoption of a large file has left that to later."""

from __future__ import annotations

import asyncio
from typing import Final

from hermes_orm.database import Database, Work
from hermes_orm.repositories.messages.uids import UidRepository

PAUSE_SECONDS: Final = 0.1
"""Between steps of some milliseconds: live writers come first."""


async def finish_uids(database: Database) -> None:
    """Give an id to each message that has none, in steps; a crash leaves the rest to the next."""
    if await database.read(lambda tx: UidRepository(tx).are_complete(), scope="statement"):
        return
    after_id: int | None = -1
    while after_id is not None:
        after_id = await database.write(_step(after_id), alone=True)
        await asyncio.sleep(PAUSE_SECONDS)


def _step(after_id: int) -> Work[int | None]:
    return lambda tx: UidRepository(tx).step(after_id)
