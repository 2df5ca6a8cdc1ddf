"""A process that owes replies and results: `python -m tests.owing LOCATION owe|sweep`.

`owe` records them, tells "ready" and waits to be killed. `sweep` waits for a line on standard
input, takes over what it can, and tells as JSON which replies and how many results that were.
"""

import asyncio
import json
import sys

from hermes_orm import SessionDB
from tests.appending import tell

REPLIES, RESULTS = 40, 10


async def owe(db: SessionDB) -> None:
    for number in range(REPLIES):
        receipt = await db.record_obligation(
            obligation_id=f"o{number}",
            session_key="k",
            platform="telegram",
            chat_id="1",
            thread_id=None,
            content=f"reply {number}",
        )
        if number % 2:
            await db.mark_attempting(receipt)
    for number in range(RESULTS):
        await db.record_delegation_dispatch(f"d{number}", "s", {"goal": "g"})
    tell("ready")
    await asyncio.sleep(60)


async def sweep(db: SessionDB) -> None:
    await db.pending_retries()
    tell("ready")
    await asyncio.to_thread(sys.stdin.readline)
    taken, recovered = await asyncio.gather(
        db.sweep_recoverable(), db.recover_abandoned_delegations()
    )
    tell(json.dumps([[each["obligation_id"] for each in taken], recovered]))


async def main(location: str, task: str) -> None:
    async with SessionDB(location) as db:
        await {"owe": owe, "sweep": sweep}[task](db)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
