"""Sessions and the texts they share."""

from sqlalchemy import ForeignKey, Index, func, text
from sqlalchemy.orm import Mapped, mapped_column

from hermes_orm.models.base import (
    Base,
    Count,
    EpochSeconds,
    Flag,
    JsonText,
    Total,
    Usd,
)


class SystemPrompt(Base):
    """A system prompt or tool list, stored once under the SHA-256 of its UTF-8 bytes.

    A row is unused when neither `sessions.system_prompt_hash` nor `sessions.tool_names` names it.
    """

    __tablename__ = "system_prompts"

    hash: Mapped[str] = mapped_column(primary_key=True)
    prompt: Mapped[str]


class Session(Base):
    """One session. A conversation is a chain of sessions linked by `parent_session_id`."""

    __tablename__ = "sessions"

    id: Mapped[str] = mapped_column(primary_key=True)
    source: Mapped[str]
    created_source: Mapped[str | None]
    user_id: Mapped[str | None]
    session_key: Mapped[str | None]
    chat_id: Mapped[str | None]
    chat_type: Mapped[str | None]
    thread_id: Mapped[str | None]
    display_name: Mapped[str | None]
    origin_json: Mapped[JsonText | None]
    expiry_finalized: Mapped[Flag | None]
    model: Mapped[str | None]
    model_config: Mapped[JsonText | None]
    system_prompt: Mapped[str | None]
    system_prompt_hash: Mapped[str | None] = mapped_column(ForeignKey("system_prompts.hash"))
    parent_session_id: Mapped[str | None] = mapped_column(ForeignKey("sessions.id"))
    started_at: Mapped[EpochSeconds]
    ended_at: Mapped[EpochSeconds | None]
    end_reason: Mapped[str | None]
    message_count: Mapped[Total | None]
    tool_call_count: Mapped[Total | None]
    input_tokens: Mapped[Total | None]
    output_tokens: Mapped[Total | None]
    cache_read_tokens: Mapped[Total | None]
    cache_write_tokens: Mapped[Total | None]
    reasoning_tokens: Mapped[Total | None]
    cwd: Mapped[str | None]
    git_branch: Mapped[str | None]
    git_repo_root: Mapped[str | None]
    git_metadata_generation: Mapped[Count]
    billing_provider: Mapped[str | None]
    billing_base_url: Mapped[str | None]
    billing_mode: Mapped[str | None]
    estimated_cost_usd: Mapped[Usd | None]
    actual_cost_usd: Mapped[Usd | None]
    cost_status: Mapped[str | None]
    cost_source: Mapped[str | None]
    pricing_version: Mapped[str | None]
    title: Mapped[str | None]
    title_source: Mapped[str | None]
    last_activity_at: Mapped[EpochSeconds | None]
    last_activity_description: Mapped[str | None]
    last_activity_provenance: Mapped[str | None]
    api_call_count: Mapped[Total | None]
    handoff_state: Mapped[str | None]
    handoff_platform: Mapped[str | None]
    handoff_error: Mapped[str | None]
    compression_failure_cooldown_until: Mapped[EpochSeconds | None]
    compression_failure_error: Mapped[str | None]
    compression_fallback_streak: Mapped[Count]
    compression_ineffective_count: Mapped[Count]
    compression_recovery_deadline: Mapped[EpochSeconds | None]
    compression_overload_streak: Mapped[Count]
    profile_name: Mapped[str | None]
    transport_profile: Mapped[str | None]
    rewind_count: Mapped[Count]
    archived: Mapped[Flag]
    auto_archived: Mapped[Flag]
    pinned: Mapped[Flag]
    hidden: Mapped[Flag]
    last_read_at: Mapped[EpochSeconds | None]
    tool_names: Mapped[str | None]


_TITLED = text("title IS NOT NULL")

Index("idx_sessions_source", Session.source)
Index("idx_sessions_source_id", Session.source, Session.id)
Index("idx_sessions_parent", Session.parent_session_id)
Index("idx_sessions_started", Session.started_at.desc())
Index(
    "idx_sessions_title_unique",
    Session.title,
    unique=True,
    sqlite_where=_TITLED,
    postgresql_where=_TITLED,
)
Index("idx_sessions_session_key", Session.session_key, Session.started_at.desc())
Index(
    "idx_sessions_gateway_peer",
    Session.source,
    Session.user_id,
    Session.chat_id,
    Session.chat_type,
    Session.thread_id,
    Session.started_at.desc(),
)
Index("idx_sessions_handoff_state", Session.handoff_state, Session.started_at)
Index("idx_sessions_system_prompt_hash", Session.system_prompt_hash)
Index("idx_sessions_tool_names", Session.tool_names)
Index(
    "idx_sessions_effective_activity",
    func.coalesce(Session.last_activity_at, Session.started_at).desc(),
    Session.started_at.desc(),
)
