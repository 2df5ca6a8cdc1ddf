"""Conversation generations: how often the conversation with a peer was started afresh."""

from __future__ import annotations

from sqlalchemy import bindparam, literal, select

from hermes_orm.codec import plain_text
from hermes_orm.dialects import Prepared
from hermes_orm.dialects.expressions import insert_into
from hermes_orm.models import ConversationGeneration
from hermes_orm.repositories.base import Repository
from hermes_orm.session_text import lookup_key

ADVANCE = Prepared(
    insert_into(
        ConversationGeneration,
        {
            "source": bindparam("source"),
            "session_key": bindparam("session_key"),
            "generation": literal(1),
        },
    ).on_conflict_do_update(
        index_elements=["source", "session_key"],
        set_={"generation": ConversationGeneration.generation + 1},
    )
)

LATEST = Prepared(
    select(ConversationGeneration.generation).where(
        ConversationGeneration.source == bindparam("source"),
        ConversationGeneration.session_key == bindparam("session_key"),
    )
)


class GenerationRepository(Repository):
    """Rows of `conversation_generations`; they are never deleted."""

    def advance(self, source: str | None, session_key: str | None) -> None:
        """Count a boundary of a peer's conversation; nothing when the row names no peer."""
        given = {"source": source, "session_key": session_key}
        peer = {name: plain_text(value or "").strip() for name, value in given.items()}
        if all(peer.values()):
            self.tx.run(ADVANCE, peer)

    def latest_conversation_boundary(self, session_key: str, source: str) -> int | None:
        """Return how often the peer's conversation was reset; None when it never was.

        The number only grows, also when sessions are deleted: no value comes twice.
        """
        peer = {"source": lookup_key(source), "session_key": lookup_key(session_key)}
        return self.tx.scalar(LATEST, peer) or None
