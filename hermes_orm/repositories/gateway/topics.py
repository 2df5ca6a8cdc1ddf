"""Private Telegram chats that are split into topics, each with a session of its own."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, cast

from sqlalchemy import (
    BigInteger,
    ClauseElement,
    ColumnElement,
    and_,
    bindparam,
    delete,
    exists,
    not_,
    or_,
    select,
    update,
)

from hermes_orm import clock
from hermes_orm.dialects import Prepared
from hermes_orm.dialects.expressions import has_key, upsert
from hermes_orm.gateway_rows import TopicBinding
from hermes_orm.models import Session, SessionRecency, TelegramTopicBinding, TelegramTopicMode
from hermes_orm.models.base import TEXT
from hermes_orm.repositories.gateway.rows import is_blank
from hermes_orm.repositories.gateway.topic_tables import TopicTableRepository
from hermes_orm.repositories.listing.listing import ListingRepository
from hermes_orm.repositories.messages.undo import LOCK_SESSION
from hermes_orm.repositories.paging import row_limit
from hermes_orm.repositories.sessions.keys import DEFAULT_PROFILE
from hermes_orm.rows import RichSessionRow
from hermes_orm.session_text import check_entry, lookup_key, session_text, stored_key

KEYS: Final = tuple(TopicBinding.__annotations__)
TRIPLE: Final = KEYS[:3]
SOURCE: Final = "telegram"

_PROFILE: Final[ColumnElement[str]] = bindparam("profile_name", type_=TEXT)
_CHAT: Final[ColumnElement[str]] = bindparam("chat_id", type_=TEXT)
_MODE: Final = and_(TelegramTopicMode.profile_name == _PROFILE, TelegramTopicMode.chat_id == _CHAT)
_OF_CHAT: Final = and_(
    TelegramTopicBinding.profile_name == _PROFILE, TelegramTopicBinding.chat_id == _CHAT
)
_TOPIC: Final = and_(_OF_CHAT, TelegramTopicBinding.thread_id == bindparam("thread_id"))
_OF_SESSION: Final = TelegramTopicBinding.session_id == bindparam("session_id")
_COLUMNS: Final = [getattr(TelegramTopicBinding, key) for key in KEYS]


def _enable() -> ClauseElement:
    names = (*TRIPLE[:2], "user_id", "has_topics_enabled", "allows_users_to_create_topics")
    now: ColumnElement[float] = bindparam("now")
    times = dict.fromkeys(("activated_at", "updated_at", "capability_checked_at"), now)
    values = {"enabled": bindparam("enabled"), **{n: bindparam(n) for n in names}, **times}
    kept = {*TRIPLE, "activated_at"}
    changed = [name for name in values if name not in kept]
    return upsert(TelegramTopicMode, values, update=changed)


def _bind() -> ClauseElement:
    values: dict[str, Any] = {key: bindparam(key) for key in KEYS[:-2]}
    now: ColumnElement[float] = bindparam("now")
    times = dict.fromkeys(KEYS[-2:], now)
    changed = [key for key in KEYS if key not in (*TRIPLE, "linked_at")]
    return upsert(TelegramTopicBinding, {**values, **times}, update=changed)


def _disable(*conditions: ColumnElement[bool]) -> Prepared:
    values: dict[str, Any] = {"enabled": bindparam("enabled"), "updated_at": bindparam("now")}
    return Prepared(update(TelegramTopicMode).where(_MODE, *conditions).values(values))


@lru_cache
def unlinked(*, has_bindings: bool) -> Prepared:
    """Select the ids of a user's sessions that have no topic, the last active first."""
    active = SessionRecency.last_active
    label = Session.profile_name == _PROFILE
    is_default = and_(is_blank(Session.profile_name), _PROFILE == DEFAULT_PROFILE)
    statement = (
        select(Session.id)
        .outerjoin(SessionRecency, has_key(SessionRecency.session_id, Session.id))
        .where(
            Session.source == SOURCE,
            Session.user_id == bindparam("user_id"),
            or_(label, is_default),
        )
        .order_by(active.desc(), Session.started_at.desc(), Session.id.desc())
        .limit(bindparam("limit", type_=BigInteger()))
    )
    if has_bindings:
        linked = exists().where(TelegramTopicBinding.session_id == Session.id)
        statement = statement.where(not_(linked))
    return Prepared(statement)


ENABLE = Prepared(_enable)
DISABLE = _disable()
DISABLE_WITHOUT_TOPICS = _disable(~exists().where(_OF_CHAT))
LOCK_MODE = Prepared(select(TelegramTopicMode.enabled).where(_MODE).with_for_update())
IS_ENABLED = Prepared(
    select(TelegramTopicMode.enabled).where(
        _MODE, TelegramTopicMode.user_id == bindparam("user_id"), TelegramTopicMode.enabled != 0
    )
)
BIND = Prepared(_bind)
TOPIC = Prepared(select(*_COLUMNS).where(_TOPIC))
OF_CHAT = Prepared(
    select(*_COLUMNS)
    .where(_OF_CHAT)
    .order_by(TelegramTopicBinding.updated_at.desc(), TelegramTopicBinding.thread_id)
)
OF_SESSION = Prepared(select(*_COLUMNS).where(_OF_SESSION))
DELETE_TOPIC = Prepared(delete(TelegramTopicBinding).where(_TOPIC))
DELETE_OF_CHAT = Prepared(delete(TelegramTopicBinding).where(_OF_CHAT))


class TopicRepository(TopicTableRepository):
    """Rows of `telegram_dm_topic_mode` and `telegram_dm_topic_bindings`."""

    def enable_telegram_topic_mode(
        self,
        *,
        chat_id: str | int,
        user_id: str | int,
        profile_name: str | None = DEFAULT_PROFILE,
        has_topics_enabled: bool | None = None,
        allows_users_to_create_topics: bool | None = None,
    ) -> None:
        """Switch topics on in the chat of a profile's bot with a user.

        What the bot may do there replaces what was known, None too.
        """
        self.establish()
        row = {
            **_chat(chat_id, profile_name),
            "user_id": stored_key(user_id, "user id"),
            "enabled": 1,
            "has_topics_enabled": _flag(has_topics_enabled),
            "allows_users_to_create_topics": _flag(allows_users_to_create_topics),
            "now": clock.now(),
        }
        check_entry({name: row[name] for name in ("profile_name", "chat_id")})
        self.tx.run(ENABLE, row)

    def disable_telegram_topic_mode(
        self,
        *,
        chat_id: str | int,
        profile_name: str | None = DEFAULT_PROFILE,
        clear_bindings: bool = True,
    ) -> None:
        """Switch topics off in a chat, and forget the sessions of its topics unless told not to."""
        self.mend()
        chat = _chat(chat_id, profile_name)
        if self.has(TelegramTopicMode):
            self.tx.run(DISABLE, {**chat, "enabled": 0, "now": clock.now()})
        if clear_bindings and self.has(TelegramTopicBinding):
            self.tx.run(DELETE_OF_CHAT, chat)

    def is_telegram_topic_mode_enabled(
        self,
        *,
        chat_id: str | int,
        user_id: str | int,
        profile_name: str | None = DEFAULT_PROFILE,
    ) -> bool:
        """Return whether topics are on in the chat of that profile with that user."""
        chat = {**_chat(chat_id, profile_name), "user_id": lookup_key(user_id)}
        return self.has(TelegramTopicMode) and self.tx.first(IS_ENABLED, chat) is not None

    def bind_telegram_topic(
        self,
        *,
        chat_id: str | int,
        thread_id: str | int,
        user_id: str | int,
        session_key: str,
        session_id: str,
        managed_mode: str = "auto",
        profile_name: str | None = DEFAULT_PROFILE,
    ) -> None:
        """Give a topic its session, in place of the one that it had; the mode stays as it is.

        Raises ValueError when the session has another topic, an integrity error when there is no
        such session.
        """
        self.establish()
        row = {
            **_topic(chat_id, thread_id, profile_name),
            "user_id": stored_key(user_id, "user id"),
            "session_key": stored_key(session_key, "session key"),
            "session_id": stored_key(session_id),
            "managed_mode": session_text(managed_mode) or "auto",
            "now": clock.now(),
        }
        for last in ("thread_id", "user_id"):
            check_entry({name: row[name] for name in ("profile_name", "chat_id", last)})
        self.tx.first(LOCK_SESSION, row)  # others who bind it wait, and then see this topic
        bound = self.tx.first(OF_SESSION, row)
        if bound is not None and bound[:3] != tuple(row[key] for key in TRIPLE):
            raise ValueError(
                f"session {session_id!r} is already linked to another Telegram topic: delete that "
                "binding first, or bind another session"
            )
        self.tx.run(BIND, row)

    def get_telegram_topic_binding(
        self,
        *,
        chat_id: str | int,
        thread_id: str | int,
        profile_name: str | None = DEFAULT_PROFILE,
    ) -> TopicBinding | None:
        """Return the binding of a topic; None when it has no session."""
        return next(iter(self._bindings(TOPIC, _topic(chat_id, thread_id, profile_name))), None)

    def list_telegram_topic_bindings_for_chat(
        self, *, chat_id: str | int, profile_name: str | None = DEFAULT_PROFILE
    ) -> list[TopicBinding]:
        """Return the bindings of a chat's topics, the last changed first."""
        return self._bindings(OF_CHAT, _chat(chat_id, profile_name))

    def get_telegram_topic_binding_by_session(self, *, session_id: str) -> TopicBinding | None:
        """Return the binding of the session, of whatever profile; None when it has no topic."""
        this = {"session_id": lookup_key(session_id)}
        return next(iter(self._bindings(OF_SESSION, this)), None)

    def is_telegram_session_linked_to_topic(self, *, session_id: str) -> bool:
        """Return whether the session has a topic, of whatever profile."""
        return bool(self._bindings(OF_SESSION, {"session_id": lookup_key(session_id)}))

    def _bindings(self, statement: Prepared, params: dict[str, Any]) -> list[TopicBinding]:
        rows = self.tx.all(statement, params) if self.has(TelegramTopicBinding) else ()
        return [cast(TopicBinding, dict(zip(KEYS, row, strict=True))) for row in rows]

    def delete_telegram_topic_binding(
        self,
        *,
        chat_id: str | int,
        thread_id: str | int,
        profile_name: str | None = DEFAULT_PROFILE,
    ) -> int:
        """Take a topic its session away; return how many bindings that were.

        With the last one of a chat, its topics are switched off.
        """
        self.mend()
        topic = _topic(chat_id, thread_id, profile_name)
        if not self.has(TelegramTopicBinding):
            return 0
        has_mode = self.has(TelegramTopicMode)
        chat = {**_chat(chat_id, profile_name), "enabled": 0, "now": clock.now()}
        if has_mode:
            self.tx.first(LOCK_MODE, chat)  # of two who delete, the later sees what is left
        deleted = self.tx.run(DELETE_TOPIC, topic)
        if deleted and has_mode:
            self.tx.run(DISABLE_WITHOUT_TOPICS, chat)
        return deleted

    def list_unlinked_telegram_sessions_for_user(
        self,
        *,
        chat_id: str | int,
        user_id: str | int,
        profile_name: str | None = DEFAULT_PROFILE,
        limit: int | None = 10,
    ) -> list[RichSessionRow]:
        """Return a user's Telegram sessions of a profile without a topic, the last active first.

        They may be in any chat, archived, hidden, ended, or children of others.
        """
        wanted = {
            "profile_name": _profile(profile_name),
            "user_id": lookup_key(user_id),
            "limit": row_limit(limit),
        }
        statement = unlinked(has_bindings=self.has(TelegramTopicBinding))
        found = [row[0] for row in self.tx.all(statement, wanted)]
        return ListingRepository(self.tx).by_ids(found)


def _profile(name: str | None) -> str:
    return (session_text(name) or "").strip() or DEFAULT_PROFILE


def _chat(chat_id: str | int, profile_name: str | None) -> dict[str, Any]:
    return {
        "profile_name": _profile(profile_name),
        "chat_id": stored_key(chat_id, "chat id"),
    }


def _topic(chat_id: str | int, thread_id: str | int, profile_name: str | None) -> dict[str, Any]:
    return {**_chat(chat_id, profile_name), "thread_id": stored_key(thread_id, "thread id")}


def _flag(value: bool | None) -> int | None:
    return None if value is None else int(bool(value))
