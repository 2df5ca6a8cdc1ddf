"""A script: opens a store, forks with a transaction open, and tells what each process could do."""

import asyncio
import gc
import json
import os
import sys
from collections.abc import Awaitable
from typing import Any

from hermes_orm import SessionDB


async def outcome(call: Awaitable[Any]) -> Any:
    """Return what a call answers, or the text of its RuntimeError."""
    try:
        return await call
    except RuntimeError as error:
        return str(error)


async def child(inherited: SessionDB, unit: SessionDB, unopened: SessionDB) -> dict[str, Any]:
    """Try every kind of store that a forked process may meet."""
    told = {
        "inherited": await outcome(inherited.get_meta("k")),
        "queued": await outcome(inherited.set_meta("k", "child")),
        "unit": await outcome(unit.set_meta("k", "child")),
        "unopened": await outcome(unopened.get_meta("k")),
        "closed": await outcome(inherited.close()),
    }
    await unopened.close()
    return told


async def main(location: str) -> None:
    """Write what the child and then the parent see."""
    unopened = SessionDB(location)
    async with SessionDB(location) as db:
        await db.set_meta("k", "committed")
        async with db.transaction() as unit:
            await unit.set_meta("k", "open")
            if (process := os.fork()) == 0:
                told = asyncio.run(child(db, unit, unopened))
                del db, unit, unopened
                gc.collect()
                os.write(1, json.dumps(told).encode() + b"\n")
                os._exit(0)
            await asyncio.to_thread(os.waitpid, process, 0)
            await unit.set_meta("later", "works")
        seen = [await db.get_meta("k"), await db.get_meta("later")]
        await db.set_meta("k", "after")
        sys.stdout.write(json.dumps([*seen, await db.get_meta("k")]))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
