"""Conversations whose operations follow from their names.

A process that carries one on needs to tell no more than how many of its operations were
acknowledged: whoever knows the name knows what must be stored then.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Literal, NamedTuple

from hermes_orm import SessionDB
from hermes_orm.rows import MessageRow

SHARED = "shared"
"""The session in which all conversations write, too; its user must create it."""


class Line(NamedTuple):
    """A message as the tests look at it."""

    role: str
    text: str
    calls: int = 0
    state: Literal["live", "undone", "archived"] = "live"

    @classmethod
    def stored(cls, row: MessageRow) -> Line:
        """Return what a row of `get_messages` says."""
        state: Any = "live" if row["active"] else "archived" if row["compacted"] else "undone"
        return cls(row["role"], str(row["content"]), len(row["tool_calls"] or ()), state)

    @property
    def message(self) -> dict[str, Any]:
        """The message as `append_messages_batch` takes it."""
        calls = [{"id": f"call {n}", "type": "function"} for n in range(self.calls)]
        return {"role": self.role, "content": self.text, "tool_calls": calls or None}


@dataclass(frozen=True)
class State:
    """What a store holds of a conversation."""

    exists: bool = False
    lines: tuple[Line, ...] = ()
    """Messages in every state, in the order of their ids."""
    title: str | None = None
    is_pinned: bool = False
    is_ended: bool = False
    tokens: int = 0
    rewinds: int = 0
    told: tuple[str, ...] = ()
    """Its messages in the shared session, which outlive its own."""

    @property
    def live(self) -> list[Line]:
        """The transcript."""
        return [line for line in self.lines if line.state == "live"]

    @property
    def findable(self) -> list[str]:
        """The texts that a search for the name finds, sorted: no archive of what is live."""
        live = [line.text for line in self.live]
        archived = [line.text for line in self.lines if line.state == "archived"]
        return sorted([*live, *(text for text in archived if text not in live), *self.told])

    def adding(self, *lines: Line) -> State:
        """Return the state with further messages."""
        return replace(self, lines=(*self.lines, *lines))

    def moving(self, old: str, new: Any, start: int = 0) -> State:
        """Return the state whose messages of one state, from a place on, are in another one."""
        moved = [
            line._replace(state=new) if place >= start and line.state == old else line
            for place, line in enumerate(self.lines)
        ]
        return replace(self, lines=tuple(moved))

    def deleted(self) -> State:
        """Return the state without the session."""
        return State(told=self.told)


@dataclass
class Conversation:
    """A session that is carried on by steps of the given kinds, a kind as often as it is given."""

    name: str
    """One word; no name may be a part of another one, for a search looks inside of words, too."""
    kinds: Sequence[Any]
    state: State = field(default_factory=State)
    steps: int = 0

    def __post_init__(self) -> None:
        self.random = Random(self.name)
        self._said = 0

    def line(self) -> Line:
        """Return a message that was not said yet."""
        self._said += 1
        role = self.random.choice(["user", "user", "assistant", "tool"])
        calls = self.random.randrange(3) if role == "assistant" else 0
        return Line(role, f"{self.name} says {self._said}", calls)

    def next(self) -> Any:
        """Return the next step; it is not taken yet."""
        while (step := self.random.choice(self.kinds).of(self)) is None:
            pass
        return step

    def take(self, step: Any) -> None:
        """Know that the next step is done."""
        self.state = step.after(self.state)
        self.steps += 1

    async def advance(self, db: SessionDB) -> None:
        """Do the next step."""
        step = self.next()
        await step.on(db, self)
        self.take(step)

    def replay(self, steps: int) -> list[State]:
        """Take steps that another process has done; return the state, and that one step later."""
        for _ in range(steps):
            self.take(self.next())
        return [self.state, self.next().after(self.state)]


async def told_in(db: SessionDB) -> dict[str, list[str]]:
    """Return the messages in the shared session by conversation, in order."""
    told = defaultdict(list)
    for row in await db.get_messages(SHARED):
        told[str(row["content"]).split()[0]].append(str(row["content"]))
    return told


async def stored(db: SessionDB, name: str, told: Sequence[str]) -> State:
    """Return what is stored of a conversation; counters and search must agree with it."""
    session: Any = await db.get_session(name)
    rows = await db.get_messages(name, include_inactive=True)
    found = State(lines=tuple(map(Line.stored, rows)), told=tuple(told))
    if session is not None:
        found = replace(
            found,
            exists=True,
            title=session["title"],
            is_pinned=bool(session["pinned"]),
            is_ended=session["ended_at"] is not None,
            tokens=session["input_tokens"],
            rewinds=session["rewind_count"],
        )
        counted = session["message_count"], session["tool_call_count"]
        assert counted == (len(found.live), sum(line.calls for line in found.live)), name
    assert len({row["id"] for row in rows}) == len(rows)
    hits = await db.search_messages(name, limit=None)
    assert sorted(hit_texts(hits, name)) == found.findable, name
    return found


def hit_texts(hits: Sequence[Any], name: str) -> list[str]:
    """Return the texts of hits, of which each is a short message of a conversation."""
    return [hit["snippet"].replace(f">>>{name}<<<", name) for hit in hits]
