"""Cancelling a call at one of its awaits."""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from typing import Any

Call = Callable[[], Coroutine[Any, Any, Any]]


async def cancelled_at(step: int, call: Call) -> bool:
    """Run `call()` as a task that is cancelled at its `step`-th await.

    True when it has fewer, and so came to its end. An error of the call is raised; a call that
    swallows the cancellation counts as cancelled.
    """
    return await _awaits(call, step) < step


async def awaits_of(call: Call) -> int:
    """Run `call()` to its end; return how often it waits, which is not always the same."""
    return await _awaits(call, cancelled_at=0)


async def _awaits(call: Call, cancelled_at: int) -> int:
    waits = 0

    class Counted:
        def __await__(self) -> Generator[Any, Any, Any]:
            nonlocal waits
            running = call().__await__()
            answer: Any = None
            error: BaseException | None = None
            while True:
                try:
                    waited = running.throw(error) if error else running.send(answer)
                except StopIteration as end:
                    return end.value
                waits += 1
                if waits == cancelled_at:
                    asyncio.get_running_loop().call_soon(task.cancel)
                try:
                    answer, error = (yield waited), None
                except BaseException as thrown:  # noqa: BLE001  (it is the call's)
                    answer, error = None, thrown

    async def run() -> Any:
        return await Counted()

    task = asyncio.create_task(run())
    await asyncio.wait([task])
    if not task.cancelled():
        task.result()
    return waits
