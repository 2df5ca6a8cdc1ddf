"""What is counted in a file before and after it changes: rows, repairs, what is kept broken."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hermes_orm.dialects.sqlite import search_upkeep
from hermes_orm.dialects.sqlite.adoption.fingerprint import columns, objects

CONTENT = ("sessions", "messages", "gateway_routing", "async_delegations")
"""Tables of which a migration neither adds nor removes a row."""

REPAIRS = {
    "active flags set": ("messages", "active", "{} IS NULL"),
    "delegate markers written": (
        "sessions",
        "model_config",
        "CASE WHEN json_valid({0}) THEN json_extract({0}, '$._delegate_from') END IS NOT NULL",
    ),
    "prompts moved": ("sessions", "system_prompt", "{} IS NOT NULL"),
    "message ids minted": ("messages", "message_uid", "{} IS NOT NULL"),
    "usage rows seeded or merged": ("session_model_usage", "session_id", "1"),
}
"""Repair -> table, column, and the condition whose rows change in number."""

JSON_COLUMNS = {
    "sessions": {"model_config", "origin_json"},
    "messages": {
        *("tool_calls", "reasoning_details", "codex_reasoning_items", "codex_message_items"),
        *("display_metadata", "absorbed_message_uids", "tool_call_uids"),
    },
}


def row_counts(driver: Any) -> dict[str, int]:
    """Return how many rows the tables of `CONTENT` have."""
    return {table: _count(driver, table, "1") for table in CONTENT if columns(driver, table)}


def repair_counts(driver: Any) -> Counter[str]:
    """Return for each repair how many rows fulfil its condition; compare two of them."""
    counts = Counter(
        {
            name: _count(driver, table, condition.format(column))
            for name, (table, column, condition) in REPAIRS.items()
            if column in columns(driver, table)
        }
    )
    if "title" in columns(driver, "sessions"):
        (number,) = driver.execute("SELECT count(title) - count(DISTINCT title) FROM sessions")
        counts["duplicate titles renamed"] = number[0]
    return counts


def repaired_rows(before: Counter[str], after: Counter[str]) -> dict[str, int]:
    """Return how many rows each repair changed."""
    changes = {name: abs(after[name] - before[name]) for name in sorted(after | before)}
    return {name: number for name, number in changes.items() if number}


def undecodable(driver: Any) -> dict[str, int]:
    """Return how many values of each JSON column are no JSON."""
    found = {
        f"{table}.{column}": _count(
            driver, table, f"{column} IS NOT NULL AND NOT json_valid({column})"
        )
        for table, names in JSON_COLUMNS.items()
        for column in columns(driver, table) & names
    }
    return {name: number for name, number in found.items() if number}


def violations(driver: Any) -> Counter[str]:
    """Count the rows that refer to a missing row, per relation."""
    return Counter(f"{row[0]} -> {row[2]}" for row in driver.execute("PRAGMA foreign_key_check"))


def schema(driver: Any) -> set[str]:
    """Return the names of tables, columns (`table.column`) and indexes, full-text ones aside."""
    tables = {
        name
        for name in objects(driver, "table")
        if not name.startswith(("messages_fts", search_upkeep.TRASH))
    }
    named = {f"{table}.{name}" for table in tables for name in columns(driver, table)}
    return named | tables | objects(driver, "index")


def _count(driver: Any, table: str, condition: str) -> int:
    (row,) = driver.execute(f"SELECT count(*) FROM {table} WHERE {condition}")
    return int(row[0])
