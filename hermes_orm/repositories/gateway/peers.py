"""Whom a session talks with: record it, and find the session in which to go on."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from sqlalchemy import (
    ClauseElement,
    ColumnElement,
    Select,
    bindparam,
    case,
    func,
    or_,
    select,
    union_all,
)
from sqlalchemy.orm import aliased

from hermes_orm import clock
from hermes_orm.dialects import Prepared
from hermes_orm.dialects.expressions import has_key_of, insert_into, unindexed
from hermes_orm.dialects.recency import is_time
from hermes_orm.gateway_rows import GatewaySessionRow
from hermes_orm.models import Message, Session, SystemPrompt
from hermes_orm.models.base import TEXT
from hermes_orm.repositories.base import Repository
from hermes_orm.repositories.gateway.rows import (
    activity,
    fence_profile,
    gateway_columns,
    gateway_row,
    has_reason,
    is_blank,
    is_of_profile,
)
from hermes_orm.repositories.lineage.ancestry import SESSION_ID
from hermes_orm.repositories.lineage.lineage import SessionAlias, with_carried
from hermes_orm.repositories.sessions.end_reasons import RECOVERABLE_END_REASONS, RESET_END_REASONS
from hermes_orm.repositories.sessions.flags import changing
from hermes_orm.session_text import check_entry, indexed_text, lookup_key, session_text, stored_key

HANDED_OFF: Final = "completed"

IDENTITY: Final = ("source", "user_id", "session_key", "chat_id", "chat_type", "thread_id")
"""What a record of a peer overwrites."""

_DETAILS: Final = ("display_name", "origin_json", "transport_profile")
"""What it overwrites if it is given."""

_TUPLE: Final = ("user_id", "chat_id", "chat_type", "thread_id")


def _text(name: str) -> ColumnElement[str]:
    return bindparam(name, type_=TEXT)


def _recorded() -> dict[str, Any]:
    return {
        **{name: _text(name) for name in IDENTITY},
        **{name: func.coalesce(_text(name), getattr(Session, name)) for name in _DETAILS},
    }


def _record() -> ClauseElement:
    values: dict[str, Any] = {
        "id": SESSION_ID,
        **{name: _text(name) for name in (*IDENTITY, *_DETAILS)},
        "created_source": _text("source"),
        "profile_name": _text("owner"),
        "started_at": bindparam("now"),
    }
    statement = insert_into(Session, values)
    return statement.on_conflict_do_update(index_elements=["id"], set_=_recorded())


def _record_lineage() -> ClauseElement:
    earlier = with_carried(select(Session.id).where(Session.id == SESSION_ID), "earlier")
    return changing(earlier, _recorded())


RECORD = Prepared(_record)
RECORD_LINEAGE = Prepared(_record_lineage)


def is_recoverable(session: SessionAlias) -> ColumnElement[bool]:
    """Whether routing may resume the session: it is open, or nobody meant to end it."""
    return or_(
        session.ended_at.is_(None),
        has_reason(session, RECOVERABLE_END_REASONS),
        session.handoff_state == HANDED_OFF,
    )


def _has_messages(session: SessionAlias) -> ColumnElement[bool]:
    # With LIMIT, because PostgreSQL would read all messages for an EXISTS here and hash them.
    a_message = select(Message.id).where(Message.session_id == session.id).limit(1)
    return or_(session.message_count > 0, a_message.scalar_subquery().is_not(None))


def _latest(peer: Any, *, with_messages: bool) -> Select[Any]:
    """Select the session of a peer in which to go on; `peer(session)` are its conditions."""
    session, other = aliased(Session), aliased(Session)
    reset = (
        select(func.max(other.ended_at))
        .where(*peer(other), has_reason(other, RESET_END_REASONS), is_time(other.ended_at))
        .scalar_subquery()
    )
    has_messages = _has_messages(session)
    statement = (
        select(*gateway_columns(session))
        .outerjoin(SystemPrompt, SystemPrompt.hash == session.system_prompt_hash)
        .where(
            *peer(session),
            is_recoverable(session),
            or_(reset.is_(None), activity(session) >= reset),
        )
        .order_by(
            case((has_messages, 0), else_=1),
            activity(session).desc(),
            session.started_at.desc(),
            session.id.desc(),
        )
        .limit(1)
    )
    return statement.where(has_messages) if with_messages else statement


def _latest_by_key() -> Select[Any]:
    def peer(session: SessionAlias) -> tuple[ColumnElement[bool], ...]:
        # A key is rarer than a source.
        is_of_source = unindexed(session.source) == _text("source")
        return session.session_key == _text("session_key"), is_of_source

    return _latest(peer, with_messages=False)


@lru_cache
def latest_by_tuple(empty: frozenset[str]) -> Prepared:
    """Return the statement that finds a peer by its chat, of which some columns are `empty`."""

    def peer(session: SessionAlias) -> tuple[ColumnElement[bool], ...]:
        return has_key_of(session.id, _in_chat(empty)), is_of_profile(session)

    return Prepared(lambda: _latest(peer, with_messages=True))


def _in_chat(empty: frozenset[str]) -> Select[Any]:
    """Select the ids of the sessions of a chat; each part can use the index of peers."""
    session = aliased(Session)
    user, *others = _TUPLE
    chat = [
        is_blank(getattr(session, name)) if name in empty else getattr(session, name) == _text(name)
        for name in others
    ]
    no_user = (session.user_id.is_(None), session.user_id == "")
    users = no_user if user in empty else (session.user_id == _text(user),)
    found = (
        select(session.id).where(session.source == _text("source"), is_user, *chat)
        for is_user in users
    )
    return select(union_all(*found).subquery().c.id)


LATEST_BY_KEY = Prepared(_latest_by_key)

_UNINDEXED: Final = {"display_name", "origin_json", "transport_profile"}


class PeerRepository(Repository):
    """Peers of sessions: source, key, and the chat that the key stands for."""

    def record(
        self,
        session_id: str,
        peer: dict[str, str | None],
        owner: str | None,
        *,
        with_ancestors: bool,
    ) -> None:
        """Write a peer to a session, which is created if need be, or to a lineage that exists."""
        if peer["source"] is None:
            raise ValueError("source cannot be None: name the platform of the session's chat")
        params = {
            name: session_text(value) if name in _UNINDEXED else indexed_text(value, name)
            for name, value in peer.items()
        }
        params["session_id"] = stored_key(session_id)
        check_entry({name: params[name] for name in ("source", *_TUPLE)})
        if with_ancestors:
            self.tx.all(RECORD_LINEAGE, params)
        else:
            self.tx.run(RECORD, {**params, "owner": owner, "now": clock.now()})

    def latest(self, peer: dict[str, str | None], owner: str | None) -> GatewaySessionRow | None:
        """Return the session of a peer in which to go on: by its key, or else by its chat."""
        params: dict[str, Any] = {name: lookup_key(value) for name, value in peer.items()}
        row = self.tx.first(LATEST_BY_KEY, params)
        if row is None and peer["chat_id"] is not None and peer["chat_type"] is not None:
            params["profile"] = fence_profile(owner, peer["session_key"])
            empty = frozenset(name for name in _TUPLE if not peer[name])
            row = self.tx.first(latest_by_tuple(empty), params)
        return None if row is None else gateway_row(row)
