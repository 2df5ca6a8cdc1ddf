"""What is done to a conversation, step by step: on a store, and to what is known of it.

Each step changes what is stored in one transaction, whatever else it does.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Self

from hermes_orm import SessionDB
from hermes_orm.error_causes import classify_persistence_error
from tests.reliability.conversations import SHARED, Conversation, Line, State, hit_texts

TTL_SECONDS = 300.0
COUNTER = "counted under the lease"

refused: Counter[str] = Counter()
"""How often this process was refused by a documented error, per kind of step."""


@dataclass(frozen=True)
class Step:
    """A step without an effect; `of` returns None where it is not possible."""

    @classmethod
    def of(cls, talk: Conversation) -> Self | None:
        """Return the step that a conversation takes next."""
        return cls() if talk.state.exists else None

    async def on(self, db: SessionDB, talk: Conversation) -> None:
        """Do it."""

    def after(self, state: State) -> State:
        """Return what is stored then."""
        return state


class Create(Step):
    @classmethod
    def of(cls, talk: Conversation) -> Self | None:
        return None if talk.state.exists else cls()

    async def on(self, db: SessionDB, talk: Conversation) -> None:
        await db.create_session(talk.name, source=talk.name)

    def after(self, state: State) -> State:
        return replace(state, exists=True)


@dataclass(frozen=True)
class Append(Step):
    line: Line

    @classmethod
    def of(cls, talk: Conversation) -> Self | None:
        return cls(talk.line()) if talk.state.exists else None

    async def on(self, db: SessionDB, talk: Conversation) -> None:
        await db.append_message(talk.name, **self.line.message)

    def after(self, state: State) -> State:
        return state.adding(self.line)


class Turn(Append):
    """A message of somebody who has the turn."""

    async def on(self, db: SessionDB, talk: Conversation) -> None:
        holder = f"pid={os.getpid()}:turn={talk.name}"
        assert await db.acquire_session_turn_lease(talk.name, holder, ttl_seconds=TTL_SECONDS)
        await db.append_message(talk.name, **self.line.message, turn_lease_holder=holder)
        await db.release_session_turn_lease(talk.name, holder)


@dataclass(frozen=True)
class Batch(Step):
    lines: tuple[Line, ...]

    @classmethod
    def of(cls, talk: Conversation) -> Self | None:
        if not talk.state.exists:
            return None
        return cls(tuple(talk.line() for _ in range(talk.random.randint(2, 6))))

    async def on(self, db: SessionDB, talk: Conversation) -> None:
        await db.append_messages_batch(talk.name, [line.message for line in self.lines])

    def after(self, state: State) -> State:
        return state.adding(*self.lines)


class Replace(Batch):
    async def on(self, db: SessionDB, talk: Conversation) -> None:
        await db.replace_messages(talk.name, [line.message for line in self.lines])

    def after(self, state: State) -> State:
        return replace(state, lines=self.lines)


class Retell(Batch):
    """The messages that are replaced can be brought back."""

    async def on(self, db: SessionDB, talk: Conversation) -> None:
        messages = [line.message for line in self.lines]
        await db.replace_messages(talk.name, messages, archive_dropped=True)

    def after(self, state: State) -> State:
        return state.moving("live", "undone").adding(*self.lines)


@dataclass(frozen=True)
class Undo(Step):
    place: int
    """Of the message in the transcript."""

    @classmethod
    def of(cls, talk: Conversation) -> Self | None:
        places = [n for n, line in enumerate(talk.state.live) if line.role == "user"]
        return cls(talk.random.choice(places[-4:])) if places else None

    async def on(self, db: SessionDB, talk: Conversation) -> None:
        rows = await db.get_messages(talk.name)
        await db.rewind_to_message(talk.name, rows[self.place]["id"])

    def after(self, state: State) -> State:
        start = state.lines.index(state.live[self.place])
        return replace(state.moving("live", "undone", start), rewinds=state.rewinds + 1)


class Restore(Step):
    async def on(self, db: SessionDB, talk: Conversation) -> None:
        await db.restore_rewound(talk.name, 0)

    def after(self, state: State) -> State:
        return state.moving("undone", "live")


@dataclass(frozen=True)
class Compact(Step):
    """A summary, under the lock, that spares the latest messages."""

    place: int
    summary: Line

    @classmethod
    def of(cls, talk: Conversation) -> Self | None:
        live = len(talk.state.live)
        return cls(max(0, live - talk.random.randint(1, 4)), talk.line()) if live else None

    async def on(self, db: SessionDB, talk: Conversation) -> None:
        holder = f"pid={os.getpid()}:compression={talk.name}"
        assert await db.try_acquire_compression_lock(talk.name, holder, TTL_SECONDS)
        rows = await db.get_messages(talk.name)
        await db.archive_and_compact(
            talk.name,
            [self.summary.message],
            watermark=rows[self.place]["id"],
            lock_holder=holder,
        )
        await db.release_compression_lock(talk.name, holder)

    def after(self, state: State) -> State:
        tail = state.live[self.place + 1 :]
        return state.moving("live", "archived").adding(self.summary, *tail)


@dataclass(frozen=True)
class Spend(Step):
    tokens: int

    @classmethod
    def of(cls, talk: Conversation) -> Self | None:
        return cls(talk.random.randint(1, 999)) if talk.state.exists else None

    @property
    def report(self) -> dict[str, Any]:
        return {"input_tokens": self.tokens, "model": "m", "billing_provider": "p"}

    async def on(self, db: SessionDB, talk: Conversation) -> None:
        await db.update_token_counts(talk.name, **self.report)

    def after(self, state: State) -> State:
        return replace(state, tokens=state.tokens + self.tokens)


class Queue(Spend):
    async def on(self, db: SessionDB, talk: Conversation) -> None:
        await db.queue_token_counts(talk.name, **self.report)
        assert await db.flush_token_counts(timeout=60)


@dataclass(frozen=True)
class Tell(Step):
    """A message in the session in which all write."""

    line: Line

    @classmethod
    def of(cls, talk: Conversation) -> Self | None:
        return cls(talk.line())

    async def on(self, db: SessionDB, talk: Conversation) -> None:
        await db.append_message(SHARED, **self.line.message)

    def after(self, state: State) -> State:
        return replace(state, told=(*state.told, self.line.text))


@dataclass(frozen=True)
class Both(Step):
    """A message in both sessions, and what it cost, in one transaction."""

    line: Line
    tokens: int

    @classmethod
    def of(cls, talk: Conversation) -> Self | None:
        return cls(talk.line(), talk.random.randint(1, 999)) if talk.state.exists else None

    async def on(self, db: SessionDB, talk: Conversation) -> None:
        while True:  # an operation inside of a block is not tried again: the block is
            with unless_locked("transaction"):
                return await self._on(db, talk.name)

    async def _on(self, db: SessionDB, name: str) -> None:
        async with db.transaction() as unit:
            await unit.append_message(name, **self.line.message)
            await unit.update_token_counts(name, input_tokens=self.tokens)
            await unit.append_message(SHARED, **self.line.message)

    def after(self, state: State) -> State:
        told = (*state.told, self.line.text)
        return replace(state.adding(self.line), tokens=state.tokens + self.tokens, told=told)


class Entitle(Append):
    async def on(self, db: SessionDB, talk: Conversation) -> None:
        assert await db.set_session_title(talk.name, self.line.text)

    def after(self, state: State) -> State:
        return replace(state, title=self.line.text)


class Pin(Step):
    async def on(self, db: SessionDB, talk: Conversation) -> None:
        assert await db.set_session_pinned(talk.name, not talk.state.is_pinned)

    def after(self, state: State) -> State:
        return replace(state, is_pinned=not state.is_pinned)


class End(Step):
    async def on(self, db: SessionDB, talk: Conversation) -> None:
        await db.end_session(talk.name, "done")

    def after(self, state: State) -> State:
        return replace(state, is_ended=True)


class Prune(Step):
    async def on(self, db: SessionDB, talk: Conversation) -> None:
        state = talk.state
        pruned = await db.prune_sessions(older_than_days=None, source=talk.name)
        assert pruned == int(state.is_ended and not state.is_pinned)

    def after(self, state: State) -> State:
        return state.deleted() if state.is_ended and not state.is_pinned else state


class Delete(Step):
    async def on(self, db: SessionDB, talk: Conversation) -> None:
        assert await db.delete_session(talk.name)

    def after(self, state: State) -> State:
        return state.deleted()


class Count(Step):
    """A number that is read and then written by whoever has the lease: none must get lost."""

    async def on(self, db: SessionDB, talk: Conversation) -> None:
        holder = f"pid={os.getpid()}:turn={talk.name}"
        assert await db.acquire_session_turn_lease(SHARED, holder, poll_interval_seconds=0.02)
        number = int(await db.get_meta(COUNTER) or 0)
        await db.set_meta(COUNTER, number + 1)
        await db.release_session_turn_lease(SHARED, holder)


class Touch(Step):
    """A sign of life, for which nobody waits longer than half a second."""

    async def on(self, db: SessionDB, talk: Conversation) -> None:
        with unless_locked("touch"):
            await db.touch_session_activity(talk.name, description="works")


class Read(Step):
    """What this store has stored is what it reads."""

    async def on(self, db: SessionDB, talk: Conversation) -> None:
        rows = await db.get_messages(talk.name)
        assert [Line.stored(row) for row in rows] == talk.state.live
        await db.get_resume_conversations(talk.name)


class Search(Step):
    async def on(self, db: SessionDB, talk: Conversation) -> None:
        hits = await db.search_messages(talk.name, limit=None)
        assert sorted(hit_texts(hits, talk.name)) == talk.state.findable


class List(Step):
    async def on(self, db: SessionDB, talk: Conversation) -> None:
        await db.list_sessions_rich(limit=50, order_by_last_active=True)
        [row] = await db.list_sessions_rich(source=talk.name)
        assert row["message_count"] == len(talk.state.live)


WRITING = (
    *([Create] * 4),
    *([Append] * 6),
    *([Batch, Spend, Tell, Both, Turn] * 2),
    *(Queue, Replace, Retell, Undo, Restore, Compact, Entitle, Pin, End, Prune, Delete),
)
MIXED = (*WRITING, *([Read, Search, List] * 2), Count, Touch)


@contextmanager
def unless_locked(kind: str) -> Iterator[None]:
    """Suppress the documented error of somebody else's lock, and count it."""
    try:
        yield
    except Exception as error:
        if classify_persistence_error(error) != "locked":
            raise
        refused[kind] += 1
