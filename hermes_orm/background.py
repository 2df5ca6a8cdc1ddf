"""A queue of writes that nobody waits for."""

from __future__ import annotations

import asyncio
import logging
import os
from abc import ABC, abstractmethod
from collections import deque
from typing import Self

from hermes_orm.completion import to_completion

logger = logging.getLogger(__name__)

SLOW_DRAIN_SECONDS = 10.0


class Entry(ABC):
    """One write of a queue."""

    @abstractmethod
    def merged(self, later: Self) -> Self | None:
        """Return this entry and the next as one; None when they have to be applied one by one."""

    @abstractmethod
    async def apply(self) -> None:
        """Do the write."""


class BackgroundQueue:
    """Applies entries one by one in their order, by a task that ends when the queue is empty.

    An entry that fails is logged and dropped. A queue belongs to the process that filled it: after
    a fork the parent applies what was queued. A loop that ends takes its task along; the next
    call starts another one, which begins with the entry that was under way.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._entries: deque[Entry] = deque()
        self._under_way: Entry | None = None
        self._writer: asyncio.Task[None] | None = None
        self._is_stopped = False
        self._process = os.getpid()

    @property
    def is_idle(self) -> bool:
        """Whether every entry has been applied."""
        if self._entries and self._process != os.getpid():
            self._entries.clear()
        return not self._entries

    def put(self, entry: Entry) -> bool:
        """Queue an entry and have it applied soon; False when the queue has been stopped."""
        if self._is_stopped:
            return False
        if self.is_idle:
            self._process = os.getpid()
        last = self._entries[-1] if self._entries else None
        merged = None if last is None or last is self._under_way else last.merged(entry)
        if merged is not None:
            self._entries.pop()
        self._entries.append(merged or entry)
        self._running()
        return True

    async def flush(self, timeout: float | None) -> bool:
        """Wait until the queue is empty; False when `timeout` seconds are over before."""
        while not self.is_idle:
            if timeout is not None and timeout <= 0:
                return False
            began = asyncio.get_running_loop().time()
            await asyncio.wait({self._running()}, timeout=timeout)
            if timeout is not None:
                timeout -= asyncio.get_running_loop().time() - began
        return True

    def stop(self) -> None:
        """Take no more entries; those that are here will be applied."""
        self._is_stopped = True

    async def drain(self) -> None:
        """Wait until the queue is empty, however long it takes."""
        if not await self.flush(SLOW_DRAIN_SECONDS):
            logger.warning("%s: close still waits for %d writes", self._name, len(self._entries))
            await self.flush(None)

    def _running(self) -> asyncio.Task[None]:
        """Return the task that writes; another one when it has ended or was left by its loop."""
        loop = asyncio.get_running_loop()
        writer = self._writer
        if writer is None or writer.done() or writer.get_loop() is not loop:
            writer = self._writer = loop.create_task(self._write(), name=self._name)
        return writer

    async def _write(self) -> None:
        while self._entries:
            self._under_way = self._entries[0]
            writing = asyncio.create_task(self._under_way.apply())
            try:
                await to_completion(writing)
            except Exception:
                logger.warning("%s: a write failed and is dropped", self._name, exc_info=True)
            finally:
                if not writing.cancelled():
                    self._entries.popleft()
