"""What a store takes of its process, its disk and its server while nothing is under way."""

import asyncio
import functools
import gc
import os
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hermes_orm import SessionDB
from hermes_orm.dialects.prepared import Prepared

AT_SERVER: Final = """
SELECT (SELECT count(*) FROM pg_prepared_statements),
    (SELECT count(*) FROM pg_stat_activity WHERE datname = current_database())
"""


@dataclass(frozen=True)
class Footprint:
    """Each is a number that stays the same, or nearly, while the store is used."""

    memory_blocks: int
    resident_kb: int
    files: int
    threads: int
    tasks: int
    statements: int
    """Built or compiled ones that the process keeps."""
    connections: int
    prepared: int
    """Statements that the server keeps for all connections."""
    wal_kb: int


async def footprint(db: SessionDB, *, pool_size: int) -> Footprint:
    """Return what the store takes; it must be at rest."""
    await db.flush_token_counts()
    at_server = await _at_server(db, pool_size)
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    wal = Path(f"{db.db_path}-wal")
    return Footprint(
        memory_blocks=sys.getallocatedblocks(),
        resident_kb=pages * os.sysconf("SC_PAGESIZE") // 1024,
        files=len(os.listdir("/proc/self/fd")),
        threads=threading.active_count(),
        tasks=len(asyncio.all_tasks()),
        statements=_statements(),
        connections=max((connections for _, connections in at_server), default=0),
        prepared=sum(prepared for prepared, _ in at_server),
        wal_kb=wal.stat().st_size // 1024 if wal.exists() else 0,
    )


def _statements() -> int:
    found = 0
    for thing in gc.get_objects():
        if isinstance(thing, Prepared):
            found += 1 + len(thing._compiled)
        elif isinstance(thing, functools._lru_cache_wrapper) and _is_cache_of_ours(thing):
            found += thing.cache_info().currsize
    return found


def _is_cache_of_ours(function: Any) -> bool:
    return str(function.__module__).startswith(("hermes_orm", "sqlalchemy"))


async def _at_server(db: Any, pool_size: int) -> list[tuple[int, int]]:
    """Ask each of the pool's connections, all held at once."""
    if not hasattr(db, "_read"):
        return []
    together = asyncio.Barrier(pool_size)

    async def ask(connection: Any) -> tuple[int, int]:
        await together.wait()
        prepared, connections = (await connection.exec_driver_sql(AT_SERVER)).one()
        return prepared, connections

    return list(await asyncio.gather(*(db._read(ask) for _ in range(pool_size))))
