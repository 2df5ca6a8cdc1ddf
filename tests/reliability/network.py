"""The way between a store and its server, which a test can block or cut."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from contextlib import suppress

AT_ONCE = struct.pack("ii", 1, 0)
"""For SO_LINGER: a close resets the connection."""


class Network:
    """Passes bytes on between clients and a server."""

    def __init__(self, host: str, port: int) -> None:
        self.port = 0
        self.clients: set[asyncio.StreamWriter] = set()
        self._target = host, port
        self._passes = asyncio.Event()
        self._passes.set()
        self._is_refusing = False
        self._answers_left: int | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one client."""
        self.clients.add(writer)
        if self._is_refusing:
            self._reset(writer)
            return
        await self._passes.wait()
        from_server, to_server = await asyncio.open_connection(*self._target)
        asks = asyncio.Event()

        def is_up() -> bool:
            return writer in self.clients

        def answered() -> None:
            if asks.is_set():
                asks.clear()
                self._count_an_answer()

        for source, sink, noted in ((reader, to_server, asks.set), (from_server, writer, answered)):
            task = asyncio.create_task(self._pump(source, sink, noted, is_up))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pump(
        self,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        noted: Callable[[], None],
        is_up: Callable[[], bool],
    ) -> None:
        with suppress(ConnectionError):
            while part := await source.read(1 << 16):
                noted()
                await self._passes.wait()
                if not is_up():
                    break
                sink.write(part)
                await sink.drain()
        self.clients.discard(sink)
        sink.close()

    def _count_an_answer(self) -> None:
        if self._answers_left is None:
            return
        self._answers_left -= 1
        if self._answers_left < 0:
            self._answers_left = None
            self.reset()

    def lose_answer(self, number: int) -> None:
        """Reset all connections when the server has given its `number`-th answer from now on."""
        self._answers_left = number

    def keep_answers(self) -> bool:
        """Lose no answer any more; return whether one was lost."""
        was_lost, self._answers_left = self._answers_left is None, None
        return was_lost

    def stall(self) -> None:
        """Pass nothing on, and close nothing: each end believes that the other is there."""
        self._passes.clear()

    def go_on(self) -> None:
        """Pass everything on again."""
        self._is_refusing = False
        self._passes.set()

    def refuse(self) -> None:
        """Hang up on whoever connects from now on."""
        self._is_refusing = True

    def drop(self) -> None:
        """Close all connections in an orderly way."""
        for client in list(self.clients):
            client.close()

    def reset(self) -> None:
        """Break all connections off."""
        for client in list(self.clients):
            self._reset(client)

    def _reset(self, client: asyncio.StreamWriter) -> None:
        self.clients.discard(client)
        if not client.transport.is_closing():
            line: socket.socket = client.get_extra_info("socket")
            line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
        client.transport.abort()

    async def close(self) -> None:
        """Wait until both sides have hung up."""
        self.go_on()
        self.reset()
        await asyncio.gather(*self._tasks)
