"""Another connection to PostgreSQL, and what waits for it."""

import asyncio
from typing import Any

import psycopg

Other = psycopg.AsyncConnection[Any]


async def waiting(other: Other, work: Any) -> asyncio.Task[Any]:
    """Start `work` and return it when it waits for a lock."""
    task = asyncio.create_task(work)
    async with await psycopg.AsyncConnection.connect(other.info.dsn, autocommit=True) as watch:
        while not task.done():
            await asyncio.sleep(0.01)
            cursor = await watch.execute("SELECT 1 FROM pg_locks WHERE NOT granted")
            if await cursor.fetchone():
                return task
    raise AssertionError(f"nothing was waited for: {task}")
