"""Work of processes that take turns in one session; see `workers`."""

from __future__ import annotations

import asyncio
import time
from multiprocessing.connection import Connection
from threading import Barrier
from typing import Any

from hermes_orm import SessionDB


def take_a_turn(line: Connection, _: Barrier, *arguments: Any) -> float:
    """Once the line says so, write at the start and, 0.6 s later, at the end of a turn.

    Return how long it was waited for.
    """
    return asyncio.run(_take_a_turn(line, *arguments))


async def _take_a_turn(line: Connection, location: str, name: str, ttl_seconds: float) -> float:
    async with SessionDB(location) as db:
        await db.session_count()
        line.recv()
        began = time.monotonic()
        assert await db.acquire_session_turn_lease(
            "s", name, ttl_seconds=ttl_seconds, poll_interval_seconds=0.05
        )
        waited = time.monotonic() - began
        await db.append_message("s", "user", f"{name}:start", turn_lease_holder=name)
        line.send(b"started")
        await asyncio.sleep(0.6)
        await db.append_message("s", "user", f"{name}:end", turn_lease_holder=name)
        await db.release_session_turn_lease("s", name)
    return waited
