"""The statements that turn layout 5 into what revision 0025 builds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from sqlalchemy import Connection, text

from hermes_orm.dialects.postgresql.adoption.layout import TABLES

TOTALS: Final = (
    "message_count tool_call_count input_tokens output_tokens cache_read_tokens "
    "cache_write_tokens reasoning_tokens api_call_count"
)
COUNTS: Final = (
    "archived pinned hidden rewind_count compression_fallback_streak compression_ineffective_count"
)
WIDENED: Final = {"sessions": TOTALS, "messages": "token_count", "async_delegations": "owner_pid"}
ZERO: Final = {
    "sessions": f"{TOTALS} {COUNTS} expiry_finalized",
    "messages": "observed compacted",
}
NULLABLE: Final = {"sessions": f"{TOTALS} expiry_finalized", "messages": "observed"}
DROPPED: Final = {"sessions": "payload last_active", "messages": "payload"}

REFERENCES: Final = (
    ("sessions", "parent_session_id", "sessions (id)"),
    ("sessions", "system_prompt_hash", "system_prompts (hash)"),
    ("messages", "session_id", "sessions (id)"),
)
REBUILT: Final = """
    idx_sessions_source idx_sessions_source_id idx_sessions_parent idx_sessions_started
    idx_sessions_session_key idx_sessions_gateway_peer idx_sessions_handoff_state
    idx_sessions_system_prompt_hash idx_sessions_title_unique idx_messages_session
    idx_messages_session_id idx_messages_session_active idx_messages_active_null
    idx_messages_assistant_calls_by_session idx_messages_platform_msg_id
    idx_compression_locks_expires idx_session_turn_leases_expires idx_session_model_usage_session
    idx_session_model_usage_model idx_async_delegations_delivery
"""
"""Indexes that the revisions build again, over columns of other types."""
SEARCH: Final = "messages_hermes_search_idx"

CONSTRAINTS: Final = text("""
    SELECT c.relname, k.conname FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid
    WHERE k.connamespace = current_schema()::regnamespace
      AND (k.contype = 'f' AND c.relname = ANY (CAST(:tables AS text[]))
           OR k.contype = 'p' AND c.relname IN ('schema_version', 'session_model_usage'))
""")
"""Foreign keys, which are checked once at the end, and the keys that change."""
TEXT_COLUMNS: Final = text("""
    SELECT table_name, column_name FROM information_schema.columns
    WHERE table_schema = current_schema() AND table_name = ANY (CAST(:tables AS text[]))
      AND data_type IN ('text', 'character varying') ORDER BY table_name, ordinal_position
""")

LATEST: Final = (
    "(array_agg({0} ORDER BY last_seen DESC NULLS LAST, id DESC) FILTER (WHERE {0} IS NOT NULL))[1]"
)
MERGED_USAGE: Final = f"""
    INSERT INTO session_model_usage (
        session_id, model, billing_provider, billing_base_url, billing_mode, task, api_call_count,
        input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, reasoning_tokens,
        estimated_cost_usd, actual_cost_usd, cost_status, cost_source, first_seen, last_seen
    )
    SELECT session_id, coalesce(model, 'unknown'), coalesce(billing_provider, ''),
           coalesce(billing_base_url, ''), coalesce(billing_mode, ''), task,
           sum(api_call_count), sum(input_tokens), sum(output_tokens), sum(cache_read_tokens),
           sum(cache_write_tokens), sum(reasoning_tokens), sum(estimated_cost_usd),
           sum(actual_cost_usd), {LATEST.format("cost_status")}, {LATEST.format("cost_source")},
           min(first_seen), max(last_seen)
    FROM adopted_usage GROUP BY 1, 2, 3, 4, 5, 6
"""
PROMPT_HASH: Final = "encode(sha256(convert_to(system_prompt, 'UTF8')), 'hex')"
PROMPTS: Final = (
    f"""
    INSERT INTO system_prompts (hash, prompt)
    SELECT DISTINCT {PROMPT_HASH}, system_prompt FROM sessions
    WHERE system_prompt IS NOT NULL AND system_prompt_hash IS NULL
    ON CONFLICT (hash) DO NOTHING
    """,
    f"""
    UPDATE sessions SET system_prompt_hash = {PROMPT_HASH}, system_prompt = NULL
    WHERE system_prompt IS NOT NULL
      AND (system_prompt_hash IS NULL OR system_prompt_hash = {PROMPT_HASH})
    """,
)


def convert(connection: Connection, replay: Callable[[], None]) -> dict[str, int]:
    """Bring all tables to the shape of 0025; return how many usage rows joined another one.

    `replay` adds the tables, columns and indexes that are missing then.
    """
    for name in (*REBUILT.split(), SEARCH):
        connection.exec_driver_sql(f"DROP INDEX IF EXISTS {name}")
    _drop_constraints(connection)
    for table, changes in _changes(connection):
        connection.exec_driver_sql(f"ALTER TABLE {table} {', '.join(changes)}")
    connection.exec_driver_sql("DROP SEQUENCE IF EXISTS schema_version_version_seq")
    connection.exec_driver_sql("DELETE FROM state_meta WHERE key = 'postgres_storage_version'")
    _add_references(connection)
    for statement in PROMPTS:
        connection.exec_driver_sql(statement)
    connection.exec_driver_sql("ALTER TABLE session_model_usage RENAME TO adopted_usage")
    replay()
    return {"usage rows merged": _merge_usage(connection)}


def _drop_constraints(connection: Connection) -> None:
    for table, name in connection.execute(CONSTRAINTS, {"tables": list(TABLES)}).all():
        connection.exec_driver_sql(f'ALTER TABLE {table} DROP CONSTRAINT "{name}"')


def _changes(connection: Connection) -> Iterator[tuple[str, list[str]]]:
    """Yield each table with all changes of its columns, so that it is rewritten once."""
    tables = [table for table in TABLES if table != "session_model_usage"]
    columns = connection.execute(TEXT_COLUMNS, {"tables": tables}).all()
    for table in tables:
        dropped = DROPPED.get(table, "").split()
        names = [column for of, column in columns if of == table and column not in dropped]
        yield (
            table,
            [
                *(f"DROP COLUMN {name}" for name in dropped),
                *(f'ALTER "{name}" TYPE TEXT COLLATE "C"' for name in names),
                *(f"ALTER {name} TYPE BIGINT" for name in WIDENED.get(table, "").split()),
                *(f"ALTER {name} SET DEFAULT 0" for name in ZERO.get(table, "").split()),
                *(f"ALTER {name} DROP NOT NULL" for name in NULLABLE.get(table, "").split()),
                *{
                    "messages": ["ALTER active SET DEFAULT 1"],
                    "schema_version": ["ALTER version DROP DEFAULT"],
                }.get(table, []),
            ],
        )


def _add_references(connection: Connection) -> None:
    for table, column, target in REFERENCES:
        connection.exec_driver_sql(
            f"ALTER TABLE {table} ADD CONSTRAINT fk_{table}_{column} "
            f"FOREIGN KEY ({column}) REFERENCES {target}"
        )


def _merge_usage(connection: Connection) -> int:
    connection.exec_driver_sql(MERGED_USAGE)
    count = "SELECT (SELECT count(*) FROM adopted_usage) - count(*) FROM session_model_usage"
    merged = int(connection.exec_driver_sql(count).scalar_one())
    connection.exec_driver_sql("DROP TABLE adopted_usage")
    return merged
