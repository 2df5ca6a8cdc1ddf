"""Who may check out a connection: a burst must not open and close overflow connections."""

from __future__ import annotations

import asyncio
from collections import deque

from sqlalchemy.exc import TimeoutError as PoolTimeoutError

OVERFLOW_AFTER = 1.0
"""Seconds that a waiter stays in line before it may take an overflow connection."""


class Permits:
    """At most `size` connections at once; after a second of waiting, up to `overflow` more."""

    def __init__(self, size: int, overflow: int, timeout: float) -> None:
        self._size = size if size > 0 else float("inf")
        self._most = float("inf") if overflow < 0 else self._size + overflow
        self._timeout = timeout
        self._taken = 0
        self._line: deque[asyncio.Future[None]] = deque()
        self._overdue: set[asyncio.Future[None]] = set()

    async def acquire(self) -> None:
        """Wait for a permit; raises SQLAlchemy's TimeoutError after the pool's time-out."""
        if self._taken < self._size and not self._line:
            self._taken += 1
            return
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._line.append(turn)
        patience = min(OVERFLOW_AFTER, self._timeout / 2)
        try:
            if await self._granted(turn, patience):
                return
            if self._taken < self._most:
                self._taken += 1
                self._line.remove(turn)
                return
            self._overdue.add(turn)
            if await self._granted(turn, self._timeout - patience):
                return
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release()  # granted at the moment of the cancellation
            elif turn in self._line:
                self._line.remove(turn)
            raise
        finally:
            self._overdue.discard(turn)
        self._line.remove(turn)
        raise PoolTimeoutError(
            f"no connection became free within pool_timeout ({self._timeout:g} s): "
            "raise database.postgres.pool_size, or use fewer tasks at a time"
        )

    @staticmethod
    async def _granted(turn: asyncio.Future[None], seconds: float) -> bool:
        await asyncio.wait((turn,), timeout=seconds)
        return turn.done()

    def release(self) -> None:
        """Give the permit back; the first in line takes it, if it need not count as overflow."""
        self._taken -= 1
        while self._line:
            turn = self._line[0]
            if self._taken >= (self._most if turn in self._overdue else self._size):
                return
            self._line.popleft()
            if not turn.done():
                self._taken += 1
                turn.set_result(None)
