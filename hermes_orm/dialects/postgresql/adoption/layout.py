"""Which databases are those of the existing PostgreSQL store in its last layout."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from sqlalchemy import Connection, text

from hermes_orm.errors import SchemaError

VERSION: Final = 25
LAYOUT: Final = 5
UNTOUCHED: Final = "nothing was changed"
COMPLETE_IT: Final = (
    "open it once with async-hermes-agent 0.20.4.1, which completes it to layout 5, then try again"
)

TABLES: Final[dict[str, str]] = {
    "schema_version": "version",
    "state_meta": "key value",
    "system_prompts": "hash prompt",
    "sessions": """
        id source user_id session_key chat_id chat_type thread_id display_name origin_json
        expiry_finalized model model_config system_prompt system_prompt_hash payload started_at
        ended_at end_reason parent_session_id message_count tool_call_count input_tokens
        output_tokens cache_read_tokens cache_write_tokens reasoning_tokens git_branch git_repo_root
        billing_provider billing_base_url billing_mode estimated_cost_usd actual_cost_usd
        cost_status cost_source pricing_version archived pinned hidden last_read_at last_active
        title title_source cwd last_activity_at last_activity_description last_activity_provenance
        api_call_count handoff_state handoff_platform handoff_error
        compression_failure_cooldown_until compression_failure_error compression_fallback_streak
        compression_ineffective_count profile_name rewind_count
    """,
    "messages": """
        id session_id payload role content tool_call_id tool_calls tool_name effect_disposition
        timestamp token_count finish_reason reasoning reasoning_content reasoning_details
        codex_reasoning_items codex_message_items platform_message_id observed active compacted
        api_content display_kind display_metadata
    """,
    "session_model_usage": """
        id session_id model billing_provider billing_base_url billing_mode task api_call_count
        input_tokens output_tokens cache_read_tokens cache_write_tokens reasoning_tokens
        estimated_cost_usd actual_cost_usd cost_status cost_source first_seen last_seen payload
    """,
    "compression_locks": "session_id holder acquired_at expires_at",
    "session_turn_leases": "conversation_id holder acquired_at expires_at",
    "async_delegations": """
        delegation_id origin_session origin_ui_session_id parent_session_id state dispatched_at
        completed_at updated_at event_json result_json delivery_state delivery_attempts delivered_at
        owner_pid owner_started_at task_json delivery_claim delivery_claimed_at origin_session_id
    """,
}
"""Tables and columns of layout 5; further ones may exist and stay as they are."""

MARKER: Final = text("SELECT value FROM state_meta WHERE key = 'postgres_storage_version'")
COLUMNS: Final = text(
    "SELECT table_name, column_name FROM information_schema.columns "
    "WHERE table_schema = current_schema()"
)
VIEWS: Final = text("""
    SELECT DISTINCT view.relname FROM pg_depend d
    JOIN pg_rewrite rule ON rule.oid = d.objid JOIN pg_class view ON view.oid = rule.ev_class
    JOIN pg_class used ON used.oid = d.refobjid
    WHERE d.classid = 'pg_rewrite'::regclass AND view.oid <> used.oid AND used.relkind = 'r'
      AND used.relnamespace = current_schema()::regnamespace ORDER BY 1
""")


def missing_columns(found: Iterable[tuple[str, str]]) -> list[str]:
    """Return what of layout 5 is not among the found columns, as `table.column`."""
    expected = {(table, name) for table, names in TABLES.items() for name in names.split()}
    return sorted(f"{table}.{name}" for table, name in expected - set(found))


def layout_refusal(marker: Any) -> SchemaError | None:
    """Return why a database of version 25 with this layout marker is not adopted, if so."""
    if marker is None:
        return SchemaError(
            f"the database of the existing PostgreSQL store has no layout marker: {UNTOUCHED}; "
            f"{COMPLETE_IT}"
        )
    number = int(marker) if marker.isascii() and marker.isdecimal() else None
    if number is None:
        return SchemaError(
            "state_meta key postgres_storage_version is malformed (not a number): "
            f"{UNTOUCHED}; restore a backup"
        )
    if number > LAYOUT:
        return SchemaError(
            f"the database has layout {number} of the existing PostgreSQL store, newer than "
            f"{LAYOUT}: {UNTOUCHED}; update hermes_orm"
        )
    if number < 1:
        return SchemaError(
            f"layout {number} of the existing PostgreSQL store is unsupported: "
            f"{UNTOUCHED}; restore a backup"
        )
    if number < LAYOUT:
        return SchemaError(
            f"the database has layout {number} of the existing PostgreSQL store, {LAYOUT} is "
            f"needed: {UNTOUCHED}; {COMPLETE_IT}"
        )
    return None


def lock_tables(connection: Connection) -> None:
    """Keep writers away until the transaction ends; readers go on until a table is rebuilt."""
    tables = ", ".join(TABLES)
    connection.exec_driver_sql(f"LOCK TABLE {tables} IN SHARE ROW EXCLUSIVE MODE")


def check_views(connection: Connection) -> None:
    """Raise SchemaError for views on the tables: the server changes no column that one uses."""
    views = connection.scalars(VIEWS).all()
    if views:
        raise SchemaError(
            f"view(s) {', '.join(views)} use tables whose columns change: {UNTOUCHED}; drop them, "
            "adopt the database, and create them again"
        )
