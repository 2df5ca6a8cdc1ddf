"""How long to pause before a busy database is asked again."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

SLOW_AFTER = 2.0
"""Seconds of waiting after which pauses grow."""


def pause(waited: float, left: float) -> float:
    """Return the seconds to wait before the next try: 20-150 ms, 250-1000 ms after two seconds."""
    least, most = (0.25, 1.0) if waited >= SLOW_AFTER else (0.02, 0.15)
    jitter = random.uniform(least, most)  # noqa: S311  (nobody gains by guessing a pause)
    return max(0.0, min(jitter, left))


async def patiently(
    attempt: Callable[[], Awaitable[T]],
    *,
    patience: float,
    is_busy: Callable[[BaseException], bool],
    exhausted: Callable[[BaseException, float], BaseException],
) -> T:
    """Await `attempt()` until it succeeds, fails for good, or `patience` seconds are over."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    while True:
        try:
            return await attempt()
        except Exception as error:
            if not is_busy(error):
                raise
            waited = loop.time() - began
            if waited >= patience:
                raise exhausted(error, patience) from error
        await asyncio.sleep(pause(waited, patience - waited))
