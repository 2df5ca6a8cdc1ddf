"""Create the schema of version 31.

A new database: sessions, transcripts, search, usage, leases, gateway and delegation state.
"""

import time
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from alembic import op

from hermes_orm.dialects.migrating import connection_of, frozen_ddl

revision = "0031"
down_revision = None
branch_labels = None
depends_on = None

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
INTEGER = sa.Integer()
BIGINT = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
DOUBLE = sa.Double().with_variant(sa.REAL(), "sqlite")
BYTES = sa.LargeBinary()


def upgrade() -> None:
    context = op.get_context()
    create_sessions()
    create_messages()
    create_usage()
    create_leases()
    create_gateway()
    create_delegations()
    create_settings()
    create_recency()
    frozen_ddl(context).create_derived_0031(connection_of(context))
    describe_store()


def downgrade() -> None:
    raise NotImplementedError("0031 is the first revision: drop the database instead")


def required(name: str, type_: Any, default: str | None = None) -> sa.Column[Any]:
    return sa.Column(name, type_, nullable=False, server_default=default and sa.text(default))


def optional(name: str, type_: Any, default: str | None = None) -> sa.Column[Any]:
    return sa.Column(name, type_, nullable=True, server_default=default and sa.text(default))


def key(name: str, type_: Any, *args: Any) -> sa.Column[Any]:
    """Return a primary key of one column."""
    nullable = frozen_ddl(op.get_context()).SINGLE_KEY_NULLABLE
    return sa.Column(name, type_, *args, nullable=nullable)


def where(condition: str) -> Mapping[str, Any]:
    return {"sqlite_where": sa.text(condition), "postgresql_where": sa.text(condition)}


def create_sessions() -> None:
    op.create_table(
        "system_prompts",
        key("hash", TEXT),
        required("prompt", TEXT),
        sa.PrimaryKeyConstraint("hash", name="system_prompts_pkey"),
    )
    op.create_table(
        "sessions",
        key("id", TEXT),
        required("source", TEXT),
        optional("created_source", TEXT),
        optional("user_id", TEXT),
        optional("session_key", TEXT),
        optional("chat_id", TEXT),
        optional("chat_type", TEXT),
        optional("thread_id", TEXT),
        optional("display_name", TEXT),
        optional("origin_json", TEXT),
        optional("expiry_finalized", INTEGER, "0"),
        optional("model", TEXT),
        optional("model_config", TEXT),
        optional("system_prompt", TEXT),
        optional("system_prompt_hash", TEXT),
        optional("parent_session_id", TEXT),
        required("started_at", DOUBLE),
        optional("ended_at", DOUBLE),
        optional("end_reason", TEXT),
        optional("message_count", BIGINT, "0"),
        optional("tool_call_count", BIGINT, "0"),
        optional("input_tokens", BIGINT, "0"),
        optional("output_tokens", BIGINT, "0"),
        optional("cache_read_tokens", BIGINT, "0"),
        optional("cache_write_tokens", BIGINT, "0"),
        optional("reasoning_tokens", BIGINT, "0"),
        optional("cwd", TEXT),
        optional("git_branch", TEXT),
        optional("git_repo_root", TEXT),
        required("git_metadata_generation", INTEGER, "0"),
        optional("billing_provider", TEXT),
        optional("billing_base_url", TEXT),
        optional("billing_mode", TEXT),
        optional("estimated_cost_usd", DOUBLE),
        optional("actual_cost_usd", DOUBLE),
        optional("cost_status", TEXT),
        optional("cost_source", TEXT),
        optional("pricing_version", TEXT),
        optional("title", TEXT),
        optional("title_source", TEXT),
        optional("last_activity_at", DOUBLE),
        optional("last_activity_description", TEXT),
        optional("last_activity_provenance", TEXT),
        optional("api_call_count", BIGINT, "0"),
        optional("handoff_state", TEXT),
        optional("handoff_platform", TEXT),
        optional("handoff_error", TEXT),
        optional("compression_failure_cooldown_until", DOUBLE),
        optional("compression_failure_error", TEXT),
        required("compression_fallback_streak", INTEGER, "0"),
        required("compression_ineffective_count", INTEGER, "0"),
        optional("compression_recovery_deadline", DOUBLE),
        required("compression_overload_streak", INTEGER, "0"),
        optional("profile_name", TEXT),
        optional("transport_profile", TEXT),
        required("rewind_count", INTEGER, "0"),
        required("archived", INTEGER, "0"),
        required("auto_archived", INTEGER, "0"),
        required("pinned", INTEGER, "0"),
        required("hidden", INTEGER, "0"),
        optional("last_read_at", DOUBLE),
        optional("tool_names", TEXT),
        sa.ForeignKeyConstraint(
            ["system_prompt_hash"], ["system_prompts.hash"], name="fk_sessions_system_prompt_hash"
        ),
        sa.ForeignKeyConstraint(
            ["parent_session_id"], ["sessions.id"], name="fk_sessions_parent_session_id"
        ),
        sa.PrimaryKeyConstraint("id", name="sessions_pkey"),
    )
    op.create_index(
        "idx_sessions_effective_activity",
        "sessions",
        [sa.text("coalesce(last_activity_at, started_at) DESC"), sa.text("started_at DESC")],
    )
    op.create_index(
        "idx_sessions_gateway_peer",
        "sessions",
        ["source", "user_id", "chat_id", "chat_type", "thread_id", sa.text("started_at DESC")],
    )
    op.create_index("idx_sessions_handoff_state", "sessions", ["handoff_state", "started_at"])
    op.create_index("idx_sessions_parent", "sessions", ["parent_session_id"])
    op.create_index(
        "idx_sessions_session_key", "sessions", ["session_key", sa.text("started_at DESC")]
    )
    op.create_index("idx_sessions_source", "sessions", ["source"])
    op.create_index("idx_sessions_source_id", "sessions", ["source", "id"])
    op.create_index("idx_sessions_started", "sessions", [sa.text("started_at DESC")])
    op.create_index("idx_sessions_system_prompt_hash", "sessions", ["system_prompt_hash"])
    op.create_index(
        "idx_sessions_title_unique",
        "sessions",
        ["title"],
        unique=True,
        **where("title IS NOT NULL"),
    )
    op.create_index("idx_sessions_tool_names", "sessions", ["tool_names"])


def create_messages() -> None:
    op.create_table(
        "messages",
        key("id", BIGINT, sa.Identity()),
        required("session_id", TEXT),
        required("role", TEXT),
        optional("content", TEXT),
        optional("tool_call_id", TEXT),
        optional("tool_calls", TEXT),
        optional("tool_name", TEXT),
        optional("effect_disposition", TEXT),
        required("timestamp", DOUBLE),
        optional("token_count", BIGINT),
        optional("finish_reason", TEXT),
        optional("reasoning", TEXT),
        optional("reasoning_content", TEXT),
        optional("reasoning_details", TEXT),
        optional("codex_reasoning_items", TEXT),
        optional("codex_message_items", TEXT),
        optional("platform_message_id", TEXT),
        optional("observed", INTEGER, "0"),
        required("_compressed_summary", INTEGER, "0"),
        required("active", INTEGER, "1"),
        required("compacted", INTEGER, "0"),
        optional("api_content", TEXT),
        optional("display_kind", TEXT),
        optional("display_metadata", TEXT),
        optional("display_identity", BYTES),
        optional("display_order", BIGINT),
        optional("message_uid", TEXT),
        optional("absorbed_message_uids", TEXT),
        optional("tool_call_uids", TEXT),
        optional("tool_call_uid", TEXT),
        sa.ForeignKeyConstraint(["session_id"], ["sessions.id"], name="fk_messages_session_id"),
        sa.PrimaryKeyConstraint("id", name="messages_pkey"),
        sqlite_autoincrement=True,
    )
    op.create_index("idx_messages_active_null", "messages", ["active"], **where("active IS NULL"))
    op.create_index(
        "idx_messages_assistant_calls_by_session",
        "messages",
        ["session_id"],
        **where("role = 'assistant' AND tool_calls IS NOT NULL"),
    )
    op.create_index(
        "idx_messages_display_backfill",
        "messages",
        ["session_id"],
        **where(
            "(active = 1 OR compacted = 1) AND (display_order IS NULL OR display_identity IS NULL)"
        ),
    )
    op.create_index(
        "idx_messages_display_identity",
        "messages",
        ["session_id", "display_identity", "display_order"],
        **where("display_identity IS NOT NULL AND (active = 1 OR compacted = 1)"),
    )
    op.create_index(
        "idx_messages_display_page",
        "messages",
        ["session_id", "display_order", sa.text("active DESC"), sa.text("id DESC")],
        **where("active = 1 OR compacted = 1"),
    )
    op.create_index(
        "idx_messages_platform_msg_id",
        "messages",
        ["session_id", "platform_message_id"],
        **where("platform_message_id IS NOT NULL"),
    )
    op.create_index("idx_messages_session", "messages", ["session_id", "timestamp"])
    op.create_index(
        "idx_messages_session_active", "messages", ["session_id", "active", "timestamp"]
    )
    op.create_index("idx_messages_session_id", "messages", ["session_id", "id"])
    op.create_index(
        "idx_messages_session_uid", "messages", ["session_id", "message_uid"], **where("active = 1")
    )


def create_usage() -> None:
    op.create_table(
        "session_model_usage",
        required("session_id", TEXT),
        required("model", TEXT),
        required("billing_provider", TEXT, "''"),
        required("billing_base_url", TEXT, "''"),
        required("billing_mode", TEXT, "''"),
        required("task", TEXT, "''"),
        required("api_call_count", BIGINT, "0"),
        required("input_tokens", BIGINT, "0"),
        required("output_tokens", BIGINT, "0"),
        required("cache_read_tokens", BIGINT, "0"),
        required("cache_write_tokens", BIGINT, "0"),
        required("reasoning_tokens", BIGINT, "0"),
        required("estimated_cost_usd", DOUBLE, "0"),
        required("actual_cost_usd", DOUBLE, "0"),
        optional("cost_status", TEXT),
        optional("cost_source", TEXT),
        optional("first_seen", DOUBLE),
        optional("last_seen", DOUBLE),
        sa.ForeignKeyConstraint(
            ["session_id"],
            ["sessions.id"],
            name="fk_session_model_usage_session_id",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint(
            "session_id",
            "model",
            "billing_provider",
            "billing_base_url",
            "billing_mode",
            "task",
            name="session_model_usage_pkey",
        ),
    )
    op.create_index("idx_session_model_usage_model", "session_model_usage", ["model"])
    op.create_index("idx_session_model_usage_session", "session_model_usage", ["session_id"])


def create_leases() -> None:
    op.create_table(
        "compression_locks",
        key("session_id", TEXT),
        required("holder", TEXT),
        required("acquired_at", DOUBLE),
        required("expires_at", DOUBLE),
        sa.PrimaryKeyConstraint("session_id", name="compression_locks_pkey"),
    )
    op.create_index("idx_compression_locks_expires", "compression_locks", ["expires_at"])
    op.create_table(
        "session_turn_leases",
        key("conversation_id", TEXT),
        required("holder", TEXT),
        required("acquired_at", DOUBLE),
        required("expires_at", DOUBLE),
        sa.PrimaryKeyConstraint("conversation_id", name="session_turn_leases_pkey"),
    )
    op.create_index("idx_session_turn_leases_expires", "session_turn_leases", ["expires_at"])


def create_gateway() -> None:
    op.create_table(
        "gateway_routing",
        required("scope", TEXT, "''"),
        required("session_key", TEXT),
        required("entry_json", TEXT),
        required("updated_at", DOUBLE),
        sa.PrimaryKeyConstraint("scope", "session_key", name="gateway_routing_pkey"),
    )
    op.create_table(
        "gateway_hygiene_state",
        key("session_key", TEXT),
        required("failure_streak", INTEGER, "0"),
        sa.PrimaryKeyConstraint("session_key", name="gateway_hygiene_state_pkey"),
    )
    op.create_table(
        "gateway_heartbeats",
        key("backend_id", TEXT),
        required("pid", BIGINT),
        required("started_at", DOUBLE),
        required("last_heartbeat", DOUBLE),
        required("profile", TEXT, "''"),
        required("host", TEXT, "''"),
        sa.PrimaryKeyConstraint("backend_id", name="gateway_heartbeats_pkey"),
    )
    op.create_table(
        "conversation_generations",
        required("source", TEXT),
        required("session_key", TEXT),
        required("generation", INTEGER, "0"),
        sa.PrimaryKeyConstraint("source", "session_key", name="conversation_generations_pkey"),
    )


def create_delegations() -> None:
    op.create_table(
        "async_delegations",
        key("delegation_id", TEXT),
        required("origin_session", TEXT),
        required("origin_ui_session_id", TEXT, "''"),
        optional("parent_session_id", TEXT),
        required("state", TEXT),
        required("dispatched_at", DOUBLE),
        optional("completed_at", DOUBLE),
        required("updated_at", DOUBLE),
        optional("event_json", TEXT),
        optional("result_json", TEXT),
        required("delivery_state", TEXT, "'pending'"),
        required("delivery_attempts", INTEGER, "0"),
        optional("delivered_at", DOUBLE),
        optional("owner_pid", BIGINT),
        optional("owner_started_at", BIGINT),
        optional("task_json", TEXT),
        optional("delivery_claim", TEXT),
        optional("delivery_claimed_at", DOUBLE),
        required("origin_session_id", TEXT, "''"),
        sa.PrimaryKeyConstraint("delegation_id", name="async_delegations_pkey"),
    )
    op.create_index(
        "idx_async_delegations_delivery", "async_delegations", ["delivery_state", "completed_at"]
    )


def create_settings() -> None:
    op.create_table("schema_version", required("version", INTEGER))
    op.create_table(
        "state_meta",
        key("key", TEXT),
        optional("value", TEXT),
        sa.PrimaryKeyConstraint("key", name="state_meta_pkey"),
    )


def create_recency() -> None:
    op.create_table(
        "hermes_session_recency",
        required("session_id", TEXT),
        required("last_active", DOUBLE),
        sa.PrimaryKeyConstraint("session_id", name="hermes_session_recency_pkey"),
        sqlite_with_rowid=False,
    )
    op.create_index(
        "idx_hermes_session_recency_order",
        "hermes_session_recency",
        [sa.text("last_active DESC"), "session_id"],
    )


def describe_store() -> None:
    """Write the number that other programs read, and the identity of this store."""
    version = sa.table("schema_version", sa.column("version", INTEGER))
    op.bulk_insert(version, [{"version": 31}])
    settings = {
        "store_instance_id": str(uuid.uuid4()),
        "store_created_at_utc": datetime.fromtimestamp(time.time(), UTC).isoformat(),
        "message_uid_backfill": "1",
    }
    meta = sa.table("state_meta", sa.column("key", TEXT), sa.column("value", TEXT))
    op.bulk_insert(meta, [{"key": name, "value": value} for name, value in settings.items()])
