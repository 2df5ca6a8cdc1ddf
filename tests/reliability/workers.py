"""Processes that use one store at the same time, forked by a server that has imported everything.

Each worker has a line to the test, a connection: it says there what its work returns, and a failure
as text, which the test raises.
"""

from __future__ import annotations

import asyncio
import os
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection
from threading import Barrier
from typing import Any

from hermes_orm import SessionDB
from tests.reliability.conversations import Conversation
from tests.reliability.steps import MIXED, WRITING, refused

SECONDS = 600
"""After which a worker that does not answer has failed."""
WARM_STEPS = 60

Work = Callable[..., Any]


class Failed(AssertionError):
    """A worker met an error; the text is its traceback."""


class Workers:
    """The workers of a test: `with Workers(work, arguments of each) as workers`."""

    def __init__(self, work: Work, arguments: Sequence[tuple[Any, ...]]) -> None:
        context = get_context("forkserver")
        context.set_forkserver_preload([__name__])
        self.barrier = context.Barrier(len(arguments))  # ends with its maker
        home = os.environ["HERMES_HOME"]
        self.lines, self.processes = [], []
        for own in arguments:
            mine, theirs = context.Pipe()
            process = context.Process(target=run, args=(work, home, theirs, self.barrier, *own))
            process.start()
            theirs.close()  # so that a worker that has ended is noticed
            self.lines.append(mine)
            self.processes.append(process)

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        for line, process in zip(self.lines, self.processes, strict=True):
            process.kill()
            process.join()
            process.close()
            line.close()

    def answers(self) -> list[Any]:
        """Return what each worker says next."""
        return [answer(line) for line in self.lines]


def answer(line: Connection) -> Any:
    """Return what a worker says next."""
    if not line.poll(SECONDS):
        raise TimeoutError(f"a worker did not answer for {SECONDS} s")
    said = line.recv()
    if isinstance(said, str) and said.startswith("Traceback"):
        raise Failed(said)
    return said


def run(work: Work, home: str, line: Connection, barrier: Barrier, *arguments: Any) -> None:
    """Do a worker's work in its process."""
    os.environ["HERMES_HOME"] = home
    try:
        line.send(work(line, barrier, *arguments))
    except BaseException:
        line.send(traceback.format_exc())
        raise


def write(line: Connection, _: Barrier, location: str) -> None:
    """For each list of names that the line brings, fork a writer, which the test kills.

    The writer says its process id, and a name for each acknowledged step of that conversation;
    after its end comes None. It is warm: what it does was done here, by the conversation "warm".
    """
    asyncio.run(carry_on(location, ["warm"], WRITING, WARM_STEPS, lambda name: None))
    while names := line.recv():
        process_id = os.fork()
        if not process_id:
            line.send(os.getpid())
            try:
                asyncio.run(carry_on(location, names, WRITING, sys.maxsize, line.send))
            except BaseException:  # noqa: BLE001  (the test raises it)
                line.send(traceback.format_exc())
            finally:
                os._exit(1)
        os.waitpid(process_id, 0)
        line.send(None)


def mix(
    _: Connection, barrier: Barrier, location: str, names: Sequence[str], steps: int
) -> Counter[str]:
    """Carry each conversation on by so many steps; return how often which step was refused."""
    barrier.wait(SECONDS)
    asyncio.run(carry_on(location, names, MIXED, steps, lambda name: None))
    return refused


async def carry_on(
    location: str,
    names: Sequence[str],
    kinds: Sequence[Any],
    steps: int,
    acknowledge: Callable[[str], None],
) -> None:
    """Carry conversations on at the same time, each by so many steps."""

    async def advance(talk: Conversation) -> None:
        while talk.steps < steps:
            await talk.advance(db)
            acknowledge(talk.name)

    async with SessionDB(location) as db:
        await asyncio.gather(*(advance(Conversation(name, kinds)) for name in names))


def open_together(line: Connection, barrier: Barrier) -> None:
    """For each location and session that the line brings, open a store when all others do."""

    async def create(location: str, session_id: str) -> int:
        async with SessionDB(location) as db:
            await db.create_session(session_id, "cli")
            return await db.session_count()

    while job := line.recv():
        barrier.wait(SECONDS)
        line.send(asyncio.run(create(*job)))
