"""Transcripts."""

from typing import Any

from sqlalchemy import ForeignKey, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from hermes_orm.models.base import Base, BigInt, EpochSeconds, Flag, JsonText, RowId


class Message(Base):
    """One transcript row. `id` alone orders a transcript; timestamps may tie.

    A row is live (`active` 1), archived by compaction (`active` 0, `compacted` 1: still shown and
    searchable) or undone (both 0).
    """

    __tablename__ = "messages"
    __table_args__ = ({"sqlite_autoincrement": True},)

    id: Mapped[RowId]
    session_id: Mapped[str] = mapped_column(ForeignKey("sessions.id"))
    role: Mapped[str]
    content: Mapped[str | None]
    tool_call_id: Mapped[str | None]
    tool_calls: Mapped[JsonText | None]
    tool_name: Mapped[str | None]
    effect_disposition: Mapped[str | None]
    timestamp: Mapped[EpochSeconds]
    token_count: Mapped[BigInt | None]
    finish_reason: Mapped[str | None]
    reasoning: Mapped[str | None]
    reasoning_content: Mapped[str | None]
    reasoning_details: Mapped[JsonText | None]
    codex_reasoning_items: Mapped[JsonText | None]
    codex_message_items: Mapped[JsonText | None]
    platform_message_id: Mapped[str | None]
    observed: Mapped[Flag | None]
    compressed_summary: Mapped[Flag] = mapped_column("_compressed_summary")
    active: Mapped[int] = mapped_column(server_default=text("1"))
    compacted: Mapped[Flag]
    api_content: Mapped[str | None]
    display_kind: Mapped[str | None]
    display_metadata: Mapped[JsonText | None]
    display_identity: Mapped[bytes | None]
    display_order: Mapped[BigInt | None]
    message_uid: Mapped[str | None]
    absorbed_message_uids: Mapped[JsonText | None]
    tool_call_uids: Mapped[JsonText | None]
    tool_call_uid: Mapped[str | None]


def _partial_index(name: str, condition: str, *columns: Any) -> Index:
    where = text(condition)
    return Index(name, *columns, sqlite_where=where, postgresql_where=where)


VISIBLE = "active = 1 OR compacted = 1"
"""Live and archived rows, as partial indexes spell it; a query must spell it with literals too."""

Index("idx_messages_session", Message.session_id, Message.timestamp)
Index("idx_messages_session_id", Message.session_id, Message.id)
Index("idx_messages_session_active", Message.session_id, Message.active, Message.timestamp)
_partial_index("idx_messages_active_null", "active IS NULL", Message.active)
_partial_index(
    "idx_messages_assistant_calls_by_session",
    "role = 'assistant' AND tool_calls IS NOT NULL",
    Message.session_id,
)
_partial_index(
    "idx_messages_platform_msg_id",
    "platform_message_id IS NOT NULL",
    Message.session_id,
    Message.platform_message_id,
)
_partial_index(
    "idx_messages_display_page",
    VISIBLE,
    Message.session_id,
    Message.display_order,
    Message.active.desc(),
    Message.id.desc(),
)
_partial_index(
    "idx_messages_display_backfill",
    f"({VISIBLE}) AND (display_order IS NULL OR display_identity IS NULL)",
    Message.session_id,
)
_partial_index(
    "idx_messages_display_identity",
    f"display_identity IS NOT NULL AND ({VISIBLE})",
    Message.session_id,
    Message.display_identity,
    Message.display_order,
)
_partial_index("idx_messages_session_uid", "active = 1", Message.session_id, Message.message_uid)
