"""Who owns an input of a gateway: the session that has stored it under the gateway's marker.

The marker stands in `display_metadata`. Content, times and ids of platforms cannot tell: equal
inputs are legitimate.
"""

from __future__ import annotations

import re
from typing import Any, Final

from sqlalchemy import ClauseElement, ColumnElement, and_, bindparam, func, select

from hermes_orm.codec import decode_display_metadata, plain_text
from hermes_orm.dialects import Prepared
from hermes_orm.dialects.expressions import has_key
from hermes_orm.models import Message
from hermes_orm.models.base import TEXT
from hermes_orm.repositories.base import Repository
from hermes_orm.repositories.lineage.ancestry import SESSION_ID, walk
from hermes_orm.repositories.lineage.chains import path_along, tip_of_session
from hermes_orm.repositories.lineage.lineage import continued_parent_id
from hermes_orm.repositories.messages.transcripts import is_visible
from hermes_orm.session_text import escape_like, lookup_key

OWNER_KEY: Final = "gateway_input_owner"

_ESCAPED_SOMEHOW: Final = re.compile(r"[^A-Za-z0-9_:. -]+")
"""What some JSON encoder may spell differently."""
_PATTERN_LENGTH: Final = 200  # SQLite refuses patterns of 50,000 characters


def _may_be_owned() -> ColumnElement[bool]:
    """Whether a row was accepted from a user, is not undone, and its metadata contain a text."""
    return and_(
        Message.role == "user",
        func.coalesce(Message.observed, 0) == 0,
        is_visible(Message),
        Message.display_metadata.like(bindparam("pattern", type_=TEXT), escape="\\"),
    )


def _in_conversation() -> ClauseElement:
    up = walk("up_from_tip", tip_of_session(), continued_parent_id)
    is_of_step = and_(has_key(Message.session_id, up.c.id), _may_be_owned())
    return select(up.c.id, up.c.next_id, Message.display_metadata).outerjoin_from(
        up, Message, is_of_step
    )


IN_SESSION = Prepared(
    select(Message.display_metadata).where(Message.session_id == SESSION_ID, _may_be_owned())
)
IN_CONVERSATION = Prepared(_in_conversation)


class OwnershipRepository(Repository):
    """Rows of `messages` by the owner that a gateway gave them. A failed read is never a no."""

    def has_gateway_input_owner(self, session_id: str, owner: str) -> bool:
        """Return whether the session has stored the input of that owner, and not undone it.

        That is a user message, live or archived and not merely observed, whose `display_metadata`
        has the owner under `gateway_input_owner`.
        """
        stored = self.tx.all(IN_SESSION, _sought(session_id, owner)) if owner else ()
        return any(_is_owned(metadata, owner) for (metadata,) in stored)

    def find_gateway_input_owner(self, session_id: str, owner: str) -> str | None:
        """Return the id of the session that has stored the input of that owner; None for none.

        Searched are the last session that carries the given one on, and all that it carries on:
        no siblings, branches, subagents or resets.
        """
        rows = self.tx.all(IN_CONVERSATION, _sought(session_id, owner)) if owner else ()
        path = path_along({step: next_step for step, next_step, _ in rows})
        owning = {step for step, _, metadata in rows if _is_owned(metadata, owner)}
        return next((step for step in path if step in owning), None)


def _sought(session_id: str, owner: str) -> dict[str, Any]:
    """Return the parameters of a query for metadata that contain the plainest part of the owner."""
    plain = max(_ESCAPED_SOMEHOW.split(plain_text(owner)), key=len)[:_PATTERN_LENGTH]
    return {"session_id": lookup_key(session_id), "pattern": f"%{escape_like(plain)}%"}


def _is_owned(metadata: str | None, owner: str) -> bool:
    found = (decode_display_metadata(metadata) or {}).get(OWNER_KEY)
    return isinstance(found, str) and found == owner
