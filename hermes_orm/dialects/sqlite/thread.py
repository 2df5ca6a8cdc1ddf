"""One SQLite connection on the thread that aiosqlite runs for it.

The only module that uses private names of aiosqlite (`_tx`, `_thread`, `_conn`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, TypeVar

import aiosqlite

from hermes_orm.completion import to_completion

T = TypeVar("T")


class ConnectionThread:
    """A driver connection and its thread; calls run one after another, each in one hop."""

    def __init__(self, connection: aiosqlite.Connection) -> None:
        self._connection = connection
        self._tx = connection._tx
        self.driver: Any = connection._conn
        """The DB-API connection; use it on the thread only."""

    @classmethod
    async def open(cls, connector: Callable[[], Any]) -> ConnectionThread:
        """Start a thread and connect on it. A cancelled open leaves no connection behind."""
        opened: list[Any] = []

        def connect() -> Any:
            opened.append(connector())
            return opened[0]

        connection = aiosqlite.Connection(connect, iter_chunk_size=64)
        connection._thread.daemon = True  # a script that forgets close() must end
        try:
            await connection
        except BaseException:
            await to_completion(_ended(connection))
            for driver in opened:  # connected although nobody waited any more
                driver.close()
            raise
        return cls(connection)

    def submit(
        self, call: Callable[[], Any], loop: asyncio.AbstractEventLoop, answer: Callable[..., None]
    ) -> None:
        """Queue `call`; when it has run, `answer(result, error)` is called on `loop`.

        The closure takes no arguments, because aiosqlite logs what it runs, and never raises,
        because an error that reaches aiosqlite's thread while the loop is closed would end it.
        """

        once = [(call, answer)]  # the thread keeps its last hop, which must not keep the store

        def hop() -> None:
            result: Any = None
            error: BaseException | None = None
            call, answer = once.pop()
            try:
                result = call()
            except StopIteration:
                error = RuntimeError("a unit of work raised StopIteration")
            except BaseException as caught:  # noqa: BLE001  (the caller gets it)
                error = caught
            with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits
                loop.call_soon_threadsafe(answer, result, error)

        self._tx.put_nowait((None, hop))

    async def call(self, call: Callable[[], T]) -> T:
        """Run `call` on the thread and return its result.

        Cancelling stops the waiting only: the call ends by itself and leaves the connection clean.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def answer(result: T, error: BaseException | None) -> None:
            if future.done():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)

        self.submit(call, loop, answer)
        return await future

    async def close(self) -> None:
        """Close the connection after everything queued before, and wait for the thread's end."""
        await self._connection.close()
        await _ended(self._connection)


async def _ended(connection: aiosqlite.Connection) -> None:
    while connection._thread.is_alive():  # noqa: ASYNC110  its last act, to answer the stop, is still under way
        await asyncio.sleep(0.001)
