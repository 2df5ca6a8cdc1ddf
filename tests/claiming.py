"""One of several processes that claim hand-offs: `python -m tests.claiming LOCATION WHAT`.

Waits for a line on standard input first; tells what it got as JSON.
"""

import asyncio
import json
import sys
from typing import Any

from hermes_orm import SessionDB


async def claim(db: SessionDB) -> list[str]:
    listed = [row["id"] for row in await db.list_pending_handoffs()]
    return [session_id for session_id in listed if await db.claim_handoff(session_id)]


async def claim_several(db: SessionDB) -> list[str]:
    found: list[str] = []
    while rows := await db.claim_pending_handoffs(7):
        found += [row["id"] for row in rows]
    return found


async def reclaim(db: SessionDB) -> list[str]:
    return await db.reclaim_stale_running_handoffs("restarted")


async def fail_hygiene(db: SessionDB) -> list[int]:
    return [await db.increment_hygiene_failure_streak("k") for _ in range(20)]


WORK: dict[str, Any] = {
    "claim": claim,
    "claim several": claim_several,
    "reclaim": reclaim,
    "hygiene": fail_hygiene,
}


async def main(location: str, what: str) -> None:
    async with SessionDB(location) as db:
        await db.has_pending_handoffs()
        tell("ready")
        await asyncio.to_thread(sys.stdin.readline)
        tell(json.dumps(await WORK[what](db)))


def tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
