"""Compressing a conversation into a new session: the parent ends when its child is complete."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import bindparam, insert, select

from hermes_orm import clock
from hermes_orm.dialects import Prepared
from hermes_orm.dialects.prepared import Params
from hermes_orm.errors import CompressionSessionBusyError, shown
from hermes_orm.models import Session
from hermes_orm.repositories.base import Repository
from hermes_orm.repositories.compression.compaction import CompactionRepository
from hermes_orm.repositories.lineage.ancestry import SESSION_ID
from hermes_orm.repositories.messages.messages import MessageRepository, counted
from hermes_orm.repositories.sessions.creation import PEER, PLACE, NewSession
from hermes_orm.repositories.sessions.end_reasons import COMPRESSION
from hermes_orm.repositories.sessions.prompts import PromptRepository
from hermes_orm.repositories.sessions.sessions import END

INHERITED: Final = PLACE + PEER
"""What the continuation of a session has in common with it."""

_GIVEN_FIRST: Final = ("cwd", "profile_name")
_ROW: Final = (
    *("id", "source", "model", "model_config", "system_prompt_hash"),
    *("parent_session_id", "started_at", *INHERITED),
)

LOCK_PARENT = Prepared(
    select(Session.ended_at, *(getattr(Session, name) for name in INHERITED))
    .where(Session.id == SESSION_ID)
    .with_for_update(key_share=True)
)
INSERT_CHILD = Prepared(
    insert(Session).values(
        {**{name: bindparam(name) for name in _ROW}, "created_source": bindparam("source")}
    )
)


@dataclass(frozen=True, slots=True)
class Publication:
    """What is published: a session, its messages, and what of its parent follows them."""

    parent_id: str
    child: NewSession
    messages: Sequence[Params]
    after_id: int | None
    last_id: int


class PublicationRepository(Repository):
    """Rows of `sessions` and `messages` that carry a conversation on."""

    def publish(self, new: Publication, *, holder: str | None, needs_lock: bool) -> None:
        """Create the child and end the parent; the parent's lock is checked if it is needed."""
        parent_id, child_id = new.parent_id, new.child.row["id"]
        parent = self.tx.first(LOCK_PARENT, {"session_id": parent_id})
        compaction = CompactionRepository(self.tx)
        if needs_lock and not (holder and compaction.holds_compression(parent_id, holder)):
            raise CompressionSessionBusyError.of(parent_id)
        if parent is None:
            raise RuntimeError(f"compression parent not found: {shown(parent_id)}; create it first")
        ended_at, *inherited = parent
        if ended_at is not None:
            raise RuntimeError(
                f"compression parent {shown(parent_id)} has already ended; continue its live end"
            )
        now = clock.now()
        self._insert(new, dict(zip(INHERITED, inherited, strict=True)), now)
        total = counted(child_id, new.messages)
        MessageRepository(self.tx).extend(new.messages, total, None)
        if compaction.copy_tail(parent_id, child_id, new.after_id, new.last_id):
            compaction.count_live(child_id)
        self.tx.first(END, {"session_id": parent_id, "now": now, "reason": COMPRESSION})

    def _insert(self, new: Publication, inherited: dict[str, Any], now: float) -> None:
        given = new.child.row
        if new.child.prompt is not None:
            PromptRepository(self.tx).keep(given["system_prompt_hash"], new.child.prompt)
        own = {name: given[name] for name in _GIVEN_FIRST if given[name]}
        parent = {"parent_session_id": new.parent_id, "started_at": now}
        self.tx.run(INSERT_CHILD, {**given, **inherited, **own, **parent})
