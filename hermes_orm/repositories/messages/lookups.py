"""Single facts about a transcript, each found by an index without reading the transcript."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    ClauseElement,
    bindparam,
    func,
    literal,
    literal_column,
    or_,
    select,
)

from hermes_orm.arguments import whole_number
from hermes_orm.codec import encode_integer, encode_text
from hermes_orm.dialects import Prepared
from hermes_orm.dialects.base import ALL_ROWS
from hermes_orm.dialects.expressions import is_beyond, unindexed
from hermes_orm.models import Message
from hermes_orm.repositories.base import Repository
from hermes_orm.repositories.lineage.ancestry import SESSION_ID
from hermes_orm.repositories.listing.previews import short_preview_of
from hermes_orm.repositories.messages.transcripts import in_session_order, is_visible
from hermes_orm.repositories.paging import row_limit, row_offset
from hermes_orm.rows import MessageState, RecentUserMessage
from hermes_orm.session_text import lookup_key

_ROLES: Final = ("user", "assistant")
_OWN: Final = Message.session_id == SESSION_ID
_IN_ORDER: Final = is_beyond(Message, SESSION_ID, literal(ALL_ROWS), before=True)
_NEWEST_FIRST: Final = in_session_order(Message, newest_first=True)
_IS_LIVE: Final = unindexed(Message.active) == 1
_ROW_ID: Final = bindparam("row_id", type_=BigInteger)
_LIMIT: Final = bindparam("limit", type_=BigInteger)


def _latest(*, require_text: bool) -> ClauseElement:
    """Select the nth newest live row with a role; only U+0020 is no text."""
    found = select(Message.id).where(_IN_ORDER, _IS_LIVE, Message.role == bindparam("role"))
    if require_text:
        found = found.where(func.trim(Message.content) != "")
    skipped = bindparam("offset", type_=BigInteger)
    return found.order_by(*_NEWEST_FIRST).limit(1).offset(skipped)


def _exists(*conditions: Any) -> ClauseElement:
    return select(literal_column("1")).where(_OWN, *conditions).limit(1)


LATEST = {
    require_text: Prepared(partial(_latest, require_text=require_text))
    for require_text in (True, False)
}
LATEST_LIVE = Prepared(
    select(Message.id).where(_IN_ORDER, _IS_LIVE).order_by(*_NEWEST_FIRST).limit(1)
)
LIVE_ROLE = Prepared(select(Message.role).where(Message.id == _ROW_ID, _OWN, Message.active == 1))
HAS_PLATFORM_ID = Prepared(
    _exists(Message.platform_message_id == bindparam("platform_message_id"), is_visible(Message))
)
HAS_INACTIVE = Prepared(_exists(Message.active == 0))
STATE = Prepared(
    select(Message.session_id, Message.active, Message.compacted).where(Message.id == _ROW_ID)
)


@lru_cache
def recent_of_user(*, with_inactive: bool) -> Prepared:
    """Return the statement that reads what the user typed, newest first."""
    typed = or_(Message.display_kind.is_(None), Message.display_kind == "")
    statement = select(Message.id, Message.timestamp, Message.content).where(
        _IN_ORDER, Message.role == "user", typed
    )
    if not with_inactive:
        statement = statement.where(_IS_LIVE)
    return Prepared(statement.order_by(*_NEWEST_FIRST).limit(_LIMIT))


class LookupRepository(Repository):
    """Rows of `messages`: whether there are some, which is the latest, what state one is in."""

    def latest_message_row_id(
        self, session_id: str, *, role: str = "user", offset: int = 0, require_text: bool = True
    ) -> int | None:
        """Return the id of the latest live message of the user or the assistant; None for none.

        `offset` skips that many of the newest. Messages without content, and those of blanks, do
        not count unless `require_text=False`; structured content counts. None for other roles and
        for a negative offset.
        """
        key, skipped = lookup_key(session_id), whole_number(offset, "offset")
        if key is None or role not in _ROLES or skipped < 0:
            return None
        params = {"session_id": key, "role": role, "offset": row_offset(skipped)}
        found: int | None = self.tx.scalar(LATEST[bool(require_text)], params)
        return found

    def latest_user_message_row_id(self, session_id: str) -> int | None:
        """Return the id of the latest live message of the user that has text; None for none."""
        return self.latest_message_row_id(session_id)

    def get_message_role(self, session_id: str, row_id: int) -> str | None:
        """Return the role of a live message of the session; None when it is none.

        Raises ValueError when `row_id` is no integer.
        """
        params = {
            "session_id": lookup_key(session_id),
            "row_id": encode_integer(whole_number(row_id, "row_id")),
        }
        role: str | None = self.tx.scalar(LIVE_ROLE, params)
        return role

    def has_platform_message_id(self, session_id: str, platform_message_id: str | None) -> bool:
        """Return whether the session has a message with that id of its platform, not undone."""
        params = {
            "session_id": lookup_key(session_id),
            "platform_message_id": encode_text(platform_message_id),
        }
        return self.tx.first(HAS_PLATFORM_ID, params) is not None

    def has_archived_messages(self, session_id: str) -> bool:
        """Return whether the session has messages that are not live: archived or undone ones."""
        return self.tx.first(HAS_INACTIVE, {"session_id": lookup_key(session_id)}) is not None

    def get_active_message_watermark(self, session_id: str) -> int:
        """Return the greatest id of a live message of the session; 0 when it has none."""
        return int(self.tx.scalar(LATEST_LIVE, {"session_id": lookup_key(session_id)}) or 0)

    def get_message_storage_state(self, message_id: int | None) -> MessageState | None:
        """Return the session of a message, and whether it is live or archived; None for no id."""
        row = self.tx.first(STATE, {"row_id": encode_integer(message_id or None)})
        if row is None:
            return None
        session_id, active, compacted = row
        return {"session_id": session_id, "active": active, "compacted": compacted}

    def list_recent_user_messages(
        self, session_id: str, limit: int = 20, include_inactive: bool = False
    ) -> list[RecentUserMessage]:
        """Return the live messages that the user typed, newest first, with previews of one line.

        A negative `limit` is none; `include_inactive` lists archived and undone messages, too.
        """
        params = {"session_id": lookup_key(session_id), "limit": row_limit(limit)}
        rows = self.tx.all(recent_of_user(with_inactive=bool(include_inactive)), params)
        return [
            {"id": row_id, "timestamp": timestamp, "preview": short_preview_of(content)}
            for row_id, timestamp, content in rows
        ]
