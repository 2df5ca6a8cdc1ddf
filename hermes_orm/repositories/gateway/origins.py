"""Gateway conversations by where they came from, and their ends."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, cast

from sqlalchemy import (
    CTE,
    ClauseElement,
    ColumnElement,
    ScalarSelect,
    Select,
    and_,
    bindparam,
    case,
    false,
    func,
    or_,
    select,
    union_all,
    update,
)
from sqlalchemy.orm import aliased

from hermes_orm import clock
from hermes_orm.dialects import Prepared
from hermes_orm.dialects.expressions import ascii_lower, has_key, has_key_of
from hermes_orm.gateway_rows import ActiveGatewayRow
from hermes_orm.models import Session, SystemPrompt
from hermes_orm.models.base import TEXT
from hermes_orm.repositories.base import Repository
from hermes_orm.repositories.gateway.peers import HANDED_OFF
from hermes_orm.repositories.gateway.rows import (
    GATEWAY_KEYS,
    activity,
    gateway_columns,
    gateway_row,
    has_reason,
    is_blank,
    is_keyed,
)
from hermes_orm.repositories.lineage.ancestry import SESSION_ID
from hermes_orm.repositories.lineage.lineage import SessionAlias
from hermes_orm.repositories.sessions.end_reasons import (
    BOUNDARY_END_REASONS,
    COMPRESSION,
    RECOVERABLE_END_REASONS,
    RESET_END_REASONS,
)
from hermes_orm.repositories.sessions.generations import GenerationRepository
from hermes_orm.session_text import fold_ascii, lookup_key, session_text

_PLATFORM: Final = bindparam("platform", type_=TEXT)


def _values_of(column: Any, name: str) -> CTE:
    """Return the distinct values (`value`) of the first column of an index, one look-up for each.

    The last one is NULL; empty texts are left out.
    """
    first = select(func.min(column).label("value")).where(column > "")
    walk = first.cte(name, recursive=True)
    following = select(func.min(column)).where(column > walk.c.value).scalar_subquery()
    return walk.union_all(select(following).where(walk.c.value.is_not(None)))


def _users_of_platform() -> CTE:
    """Return (`source`, `user_id`) of a platform, one look-up for each; last ones are NULL."""
    sources, session = _values_of(Session.source, "sources"), aliased(Session)

    def following(source: Any, user: Any) -> ScalarSelect[Any]:
        later = (session.source == source, session.user_id > user)
        return select(func.min(session.user_id)).where(*later).scalar_subquery()

    first = following(sources.c.value, "").label("user_id")
    walk = (
        select(sources.c.value.label("source"), first)
        .where(ascii_lower(sources.c.value) == _PLATFORM)
        .cte("users", recursive=True)
    )
    step = select(walk.c.source, following(walk.c.source, walk.c.user_id))
    return walk.union_all(step.where(walk.c.user_id.is_not(None)))


def _in_chat() -> Select[Any]:
    """Select the ids of the sessions of a chat, by its users: the index of peers has them first."""
    users, session = _users_of_platform(), aliased(Session)
    ends = users.c.user_id.is_(None)  # one for each source
    by_user = (
        (users.c.user_id.is_not(None), has_key(session.user_id, users.c.user_id)),
        (ends, session.user_id.is_(None)),
        (ends, session.user_id == ""),
    )
    found = (
        select(session.id)
        .join_from(users, session, has_key(session.source, users.c.source))
        .where(*conditions, session.chat_id == bindparam("chat_id", type_=TEXT))
        for conditions in by_user
    )
    return select(union_all(*found).subquery().c.id)


@lru_cache
def by_origin(*, has_thread: bool, is_threaded: bool) -> Prepared:
    """Return the statement that finds the open sessions of a chat, and its first and last user."""

    def statement() -> ClauseElement:
        session = aliased(Session)
        thread = session.thread_id == bindparam("thread_id", type_=TEXT)
        found = (
            select(session.id, session.user_id, session.started_at)
            .where(
                has_key_of(session.id, _in_chat()),
                is_keyed(session),
                session.ended_at.is_(None),
                *([thread if is_threaded else is_blank(session.thread_id)] if has_thread else ()),
            )
            .cte("found")
        )
        named = select(found.c.user_id).where(func.trim(found.c.user_id) != "").subquery()
        users = (select(limit(named.c.user_id)).scalar_subquery() for limit in (func.min, func.max))
        is_wanted = case((found.c.user_id == bindparam("user_id", type_=TEXT), 0), else_=1)
        order = (is_wanted, found.c.started_at.desc(), found.c.id.desc())
        return select(found.c.id, found.c.user_id, *users).order_by(*order).limit(2)

    return Prepared(statement)


def _newest_of_key(session_key: ColumnElement[str]) -> ScalarSelect[Any]:
    session = aliased(Session)
    return (
        select(session.id)
        .where(session.session_key == session_key)
        .order_by(session.started_at.desc(), session.id.desc())
        .limit(1)
        .scalar_subquery()
    )


@lru_cache
def newest_sessions(names: frozenset[str]) -> Prepared:
    """Return the statement that selects the newest session of each key, the last active first."""

    def statement() -> ClauseElement:
        keys = _values_of(Session.session_key, "keys")
        newest = select(_newest_of_key(keys.c.value).label("id")).where(keys.c.value.is_not(None))
        conditions = {
            "platform": ascii_lower(Session.source) == _PLATFORM,
            "active": Session.ended_at.is_(None),
        }
        found = newest.subquery()
        return (
            select(*gateway_columns(), activity(Session).label("last_active"))
            .join_from(found, Session, has_key(Session.id, found.c.id))
            .outerjoin(SystemPrompt, SystemPrompt.hash == Session.system_prompt_hash)
            .where(*(conditions[name] for name in sorted(names)))
            .order_by(activity(Session).desc(), Session.id.desc())
        )

    return Prepared(statement)


def is_promotable(session: SessionAlias) -> ColumnElement[bool]:
    """Whether a reset may take the place of the session's end, if it has one."""
    is_boundary = has_reason(session, {COMPRESSION, *BOUNDARY_END_REASONS})
    return or_(
        session.ended_at.is_(None),
        has_reason(session, RECOVERABLE_END_REASONS),
        and_(session.handoff_state == HANDED_OFF, ~func.coalesce(is_boundary, false())),
    )


FINALIZE_EXPIRY = Prepared(
    update(Session).where(Session.id == SESSION_ID).values(expiry_finalized=bindparam("value"))
)
PROMOTE = Prepared(
    lambda: (
        update(Session)
        .where(Session.id == SESSION_ID, is_promotable(Session))
        .values(ended_at=bindparam("now"), end_reason=bindparam("reason"))
        .returning(Session.source, Session.session_key)
    )
)


class OriginRepository(Repository):
    """Rows of `sessions` that belong to a peer."""

    def find_session_by_origin(
        self,
        *,
        platform: str,
        chat_id: str | None,
        thread_id: str | None = None,
        user_id: str | None = None,
    ) -> str | None:
        """Return the id of the newest open session of a chat, or None.

        Of the given user; else, if it is the only one, of any. Without a user None when sessions of
        several users are found. An empty `thread_id` finds what has no thread, None anything. Case
        of the platform does not count.
        """
        user = lookup_key(user_id)
        chat = {
            "platform": fold_ascii(lookup_key(platform) or ""),
            "chat_id": lookup_key(chat_id),
            "thread_id": lookup_key(thread_id),
            "user_id": user,
        }
        if not chat["platform"] or not chat["chat_id"]:
            return None
        statement = by_origin(has_thread=thread_id is not None, is_threaded=thread_id != "")
        rows = self.tx.all(statement, chat)
        if not rows:
            return None
        found, its_user, first_user, last_user = rows[0]
        is_clear = its_user == user or len(rows) == 1 if user else first_user == last_user
        return found if is_clear else None

    def list_gateway_sessions(
        self, *, platform: str | None = None, active_only: bool = True
    ) -> list[ActiveGatewayRow]:
        """Return the newest session of every session key, the last active first.

        Archived and hidden ones, too. With `active_only` no key whose newest session has ended,
        whatever older ones it has. Case of the platform does not count.
        """
        names = {"platform"} if platform else set()
        names |= {"active"} if active_only else set()
        name = fold_ascii(lookup_key(platform) or "")
        rows = self.tx.all(newest_sessions(frozenset(names)), {"platform": name})
        place = len(GATEWAY_KEYS)
        return [
            cast(ActiveGatewayRow, {**gateway_row(row), "last_active": row[place]}) for row in rows
        ]

    def set_expiry_finalized(self, session_id: str, finalized: bool = True) -> None:
        """Note whether a host has finished what it does when the session expires."""
        value = int(bool(finalized))
        self.tx.run(FINALIZE_EXPIRY, {"session_id": lookup_key(session_id), "value": value})

    def promote_to_session_reset(
        self, session_id: str, reason: str | None = "session_reset"
    ) -> bool:
        """End a session by a reset, unless it was ended on purpose; return whether that was done.

        A session that only a runtime left, or that was handed over, is ended anew. The generation
        of its peer is advanced.
        """
        text = session_text(reason)
        end = {"session_id": lookup_key(session_id), "now": clock.now(), "reason": text}
        peer = self.tx.first(PROMOTE, end)
        if peer is not None and text in RESET_END_REASONS:
            GenerationRepository(self.tx).advance(*peer)
        return peer is not None
