"""Work that must not stop half-way, and calls that somebody waits for."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def to_completion(work: Coroutine[Any, Any, T] | asyncio.Task[T]) -> T:
    """Drive `work` to its end, then raise the first cancellation that arrived meanwhile.

    A failure of the work becomes the cause of that cancellation; without one, it is raised.
    """
    task = work if isinstance(work, asyncio.Task) else asyncio.create_task(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            cancelled = cancelled or error
    if cancelled is None:
        return task.result()
    failure = None if task.cancelled() else task.exception()
    raise cancelled from failure


async def cancelled_once(work: Coroutine[Any, Any, T]) -> T:
    """Await `work`, which gets the first cancellation only; what undoes it is not disturbed."""
    task = asyncio.create_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await to_completion(task)
        raise


class InFlight:
    """Counts the calls that are under way, so that a close can wait for them.

    It does not wait for the calls' tasks: those may go on with other work, or wait for the close.
    """

    def __init__(self) -> None:
        self._calls = 0
        self._idle: asyncio.Event | None = None

    def __enter__(self) -> None:
        self._calls += 1

    def __exit__(self, *error: object) -> None:
        self._calls -= 1
        if not self._calls and self._idle is not None:
            self._idle.set()

    async def ended(self, within: float | None = None) -> bool:
        """Wait until no call is under way, at most `within` seconds; return whether it is so."""
        if self._calls:
            self._idle = asyncio.Event()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._idle.wait(), within)
        return not self._calls
