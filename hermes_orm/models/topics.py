"""Telegram chats that are split into topics, and the session that each topic belongs to."""

from sqlalchemy import ForeignKey, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from hermes_orm.models.base import Base, EpochSeconds

_DEFAULT_PROFILE = text("'default'")


class TelegramTopicMode(Base):
    """Whether a profile's bot uses topics in a private chat, and what it found it may do there."""

    __tablename__ = "telegram_dm_topic_mode"

    profile_name: Mapped[str] = mapped_column(primary_key=True, server_default=_DEFAULT_PROFILE)
    chat_id: Mapped[str] = mapped_column(primary_key=True)
    user_id: Mapped[str]
    enabled: Mapped[int] = mapped_column(server_default=text("1"))
    activated_at: Mapped[EpochSeconds]
    updated_at: Mapped[EpochSeconds]
    has_topics_enabled: Mapped[int | None]
    allows_users_to_create_topics: Mapped[int | None]
    capability_checked_at: Mapped[EpochSeconds | None]
    intro_message_id: Mapped[str | None]
    pinned_message_id: Mapped[str | None]


class TelegramTopicBinding(Base):
    """The session of a topic; a session has one topic at most."""

    __tablename__ = "telegram_dm_topic_bindings"

    profile_name: Mapped[str] = mapped_column(primary_key=True, server_default=_DEFAULT_PROFILE)
    chat_id: Mapped[str] = mapped_column(primary_key=True)
    thread_id: Mapped[str] = mapped_column(primary_key=True)
    user_id: Mapped[str]
    session_key: Mapped[str]
    session_id: Mapped[str] = mapped_column(ForeignKey("sessions.id", ondelete="CASCADE"))
    managed_mode: Mapped[str] = mapped_column(server_default=text("'auto'"))
    linked_at: Mapped[EpochSeconds]
    updated_at: Mapped[EpochSeconds]


Index("idx_telegram_dm_topic_bindings_session", TelegramTopicBinding.session_id, unique=True)
Index(
    "idx_telegram_dm_topic_bindings_user",
    TelegramTopicBinding.profile_name,
    TelegramTopicBinding.user_id,
    TelegramTopicBinding.chat_id,
)
