"""One of several processes that write: `python -m tests.appending LOCATION SESSION NAME COUNT`.

Waits for a line on standard input before it appends, so that all processes write at the same time;
tells the row ids as JSON.
"""

import asyncio
import json
import sys

from hermes_orm import SessionDB


async def main(location: str, session_id: str, name: str, count: int) -> None:
    async with SessionDB(location) as db:
        await db.ensure_session(session_id, "cli")
        tell("ready")
        await asyncio.to_thread(sys.stdin.readline)
        tell(json.dumps([await append(db, session_id, name, number) for number in range(count)]))


async def append(db: SessionDB, session_id: str, name: str, number: int) -> int:
    calls = [{"id": f"{name}-{number}", "type": "function"}] if number % 10 == 0 else None
    return await db.append_message(session_id, "assistant", f"{name} {number}", tool_calls=calls)


def tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    location, session_id, name, count = sys.argv[1:]
    asyncio.run(main(location, session_id, name, int(count)))
