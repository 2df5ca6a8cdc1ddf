"""A process that prunes and stops in the middle: `python -m tests.pruning LOCATION`.

Tells "ready" when it has deleted some of the sessions, before their deletion is committed.
"""

import asyncio
import sys
import time
from collections.abc import Sequence

from hermes_orm import SessionDB
from hermes_orm.dialects.base import Row
from hermes_orm.repositories.retention import deletion
from tests.appending import tell

delete = deletion.DeletionRepository._delete
chunks: list[int] = []


def stopping(self: deletion.DeletionRepository, rows: Sequence[Row]) -> None:
    delete(self, rows)
    chunks.append(len(rows))
    if len(chunks) == 2:
        tell("ready")
        time.sleep(60)


async def main(location: str) -> None:
    deletion.CHUNK = 5  # type: ignore[misc]
    deletion.DeletionRepository._delete = stopping  # type: ignore[method-assign]
    async with SessionDB(location) as db:
        await db.prune_sessions(older_than_days=None)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
