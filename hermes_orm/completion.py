"""Work that must not stop half-way, however often its caller is cancelled."""

from __future__ import annotations

import asyncio
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
