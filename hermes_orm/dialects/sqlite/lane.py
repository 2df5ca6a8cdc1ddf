"""One connection to a SQLite file, and reading on it."""

from __future__ import annotations

import contextvars
from typing import TypeVar

from hermes_orm.dialects.base import Dialect, Scope, Work
from hermes_orm.dialects.sqlite.files import Claim
from hermes_orm.dialects.sqlite.thread import ConnectionThread
from hermes_orm.dialects.sqlite.transaction import HeldConnection, SQLiteTransaction

T = TypeVar("T")


class Lane:
    """One connection with its thread and its held SQLAlchemy connection."""

    def __init__(self, thread: ConnectionThread, dialect: Dialect, claim: Claim) -> None:
        self.thread = thread
        self.held = HeldConnection(thread.driver, dialect)
        self.pending = 0
        self._claim = claim

    async def read(self, work: Work[T], scope: Scope, *, guarded: bool) -> T:
        """Run a read unit; `guarded` on the writer's connection, which could change something."""
        context = contextvars.copy_context()
        self.pending += 1
        try:
            return await self.thread.call(
                lambda: context.run(read_unit, self.held, work, scope, guarded)
            )
        finally:
            self.pending -= 1

    async def close(self) -> None:
        """Let go of the connection inside its thread, then end the thread."""
        try:
            await self.thread.call(self.held.dispose)
            await self.thread.close()
        finally:
            self._claim.release()


def read_unit(held: HeldConnection, work: Work[T], scope: Scope, guarded: bool) -> T:
    """Run `work` on the connection's thread, in a snapshot unless one statement is all it sends."""
    tx = SQLiteTransaction(held, guarded=guarded)
    try:
        if scope != "statement":
            held.begin("BEGIN")
        return work(tx)
    finally:
        tx.end()
        held.rollback()
        held.allow_changes()
