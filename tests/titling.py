"""One of several processes that set titles: `python -m tests.titling LOCATION NAME COUNT`.

Waits for a line on standard input, then gives each title to a session of its own; tells as JSON
what became of each: true, or the class and text of the error.
"""

import asyncio
import json
import sys

from hermes_orm import SessionDB
from tests.appending import tell


async def main(location: str, name: str, count: int) -> None:
    async with SessionDB(location) as db:
        for number in range(count):
            await db.create_session(f"{name}-{number}", "cli")
        tell("ready")
        await asyncio.to_thread(sys.stdin.readline)
        tell(json.dumps([await entitle(db, name, number) for number in range(count)]))


async def entitle(db: SessionDB, name: str, number: int) -> bool | list[str]:
    try:
        return await db.set_session_title(f"{name}-{number}", f"Title {number}")
    except Exception as error:  # noqa: BLE001  (the test says which one it may be)
        return [type(error).__name__, str(error)]


if __name__ == "__main__":
    location, name, count = sys.argv[1:]
    asyncio.run(main(location, name, int(count)))
