"""How sessions begin: the first texts of their transcripts."""

from __future__ import annotations

from sqlalchemy import BigInteger, Select, bindparam, or_, select
from sqlalchemy.orm import aliased

from hermes_orm.codec import decode_content
from hermes_orm.dialects import Prepared
from hermes_orm.dialects.expressions import has_key
from hermes_orm.models import Message, Session
from hermes_orm.models.base import TEXT
from hermes_orm.repositories.base import Repository
from hermes_orm.repositories.listing.previews import first_of_user, is_encoded_scaffold, is_scaffold
from hermes_orm.repositories.paging import row_limit
from hermes_orm.rows import ScaffoldedSession
from hermes_orm.session_text import lookup_key


def _first_of_assistant() -> Select[str | None]:
    return (
        select(Message.content)
        .where(
            Message.session_id == bindparam("session_id", type_=TEXT),
            Message.role == "assistant",
            Message.content != "",
        )
        .order_by(Message.timestamp, Message.id)
        .limit(1)
    )


def _scaffolded() -> Select[str, str | None, str | None]:
    first = aliased(Message)
    is_opening = has_key(first.id, first_of_user(Session.id, Message.id))
    return (
        select(Session.id, Session.title, first.content)
        .join_from(Session, first, is_opening)
        .where(
            Session.title.is_not(None),
            or_(is_scaffold(first.content), is_encoded_scaffold(first.content)),
        )
        .order_by(Session.started_at.desc(), Session.id.desc())
        .limit(bindparam("limit", type_=BigInteger()))
    )


FIRST_OF_ASSISTANT = Prepared(_first_of_assistant)
SCAFFOLDED = Prepared(_scaffolded)


class OpeningRepository(Repository):
    """First messages of transcripts."""

    def get_first_assistant_text(self, session_id: str) -> str:
        """Return the first text of the assistant, undone rows included; empty without one.

        Turns without text, which only call tools, are skipped; structured content is no text.
        """
        stored = self.tx.scalar(FIRST_OF_ASSISTANT, {"session_id": lookup_key(session_id)})
        content = decode_content(stored)
        return content if isinstance(content, str) else ""

    def list_skill_scaffolded_sessions(self, limit: int | None = 200) -> list[ScaffoldedSession]:
        """Return the titled sessions that begin with a skill, the latest started first.

        That is what their first user message says, whose stored text comes along. Archived, hidden
        and child sessions are among them. No or a negative limit: all of them.
        """
        rows = self.tx.all(SCAFFOLDED, {"limit": row_limit(limit)})
        return [
            {"id": key, "title": title, "content": str(decode_content(stored))}
            for key, title, stored in rows
        ]
