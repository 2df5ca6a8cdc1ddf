"""Cancelling a call at one of its awaits."""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from typing import Any


async def cancelled_at(step: int, call: Callable[[], Coroutine[Any, Any, Any]]) -> bool:
    """Run `call()` as a task that is cancelled at its `step`-th await.

    True when it has fewer, and so came to its end. An error of the call is raised; a call that
    swallows the cancellation counts as cancelled.
    """
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
                if waits == step:
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
    return waits < step
