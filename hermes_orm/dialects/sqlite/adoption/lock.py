"""One migration of a file at a time, whoever runs it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from hermes_orm.errors import SchemaError

POLL_SECONDS = 0.05


@asynccontextmanager
async def migration_lock(path: Path, wait: float) -> AsyncIterator[None]:
    """Hold the lock file beside a database; it is removed at the end.

    The lock lets others wait for a long migration longer than for a write; what keeps the data
    safe is the write transaction. Raises SchemaError when it is not had within `wait` seconds.
    """
    name = path.with_name(path.name + ".migration.lock")
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait
    while (descriptor := try_lock(name)) is None:
        if loop.time() >= deadline:
            raise SchemaError(
                f"another process has been migrating {path.name} for {wait:.0f} s or longer: "
                "wait for it, then try again"
            )
        await asyncio.sleep(POLL_SECONDS)
    try:
        yield
    finally:
        unlock(name, descriptor)


def unlock(name: Path, descriptor: int) -> None:
    """Remove a lock file that `try_lock` has locked."""
    name.unlink(missing_ok=True)
    os.close(descriptor)


def try_lock(name: Path) -> int | None:
    """Return a descriptor that holds the lock, or None while another one does."""
    try:
        from fcntl import LOCK_EX, LOCK_NB, flock
    except ImportError:  # no POSIX system: the write transaction alone has to do
        return os.open(name, os.O_CREAT | os.O_RDWR, 0o600)
    descriptor = os.open(name, os.O_CREAT | os.O_RDWR, 0o600)
    with suppress(OSError):
        flock(descriptor, LOCK_EX | LOCK_NB)
        # Its former holder may have removed the file in the meantime: then it locks nobody out.
        if os.path.samestat(os.fstat(descriptor), name.stat()):
            return descriptor
    os.close(descriptor)
    return None
