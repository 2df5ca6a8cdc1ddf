"""What is counted in a file before and after it changes: rows, repairs, what is kept broken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Set
from typing import Any

from hermes_orm.dialects.sqlite import search_upkeep
from hermes_orm.dialects.sqlite.adoption.fingerprint import columns, objects

CONTENT = ("sessions", "messages", "gateway_routing", "async_delegations")
"""Tables of which a migration neither adds nor removes a row."""

REPAIRS = {
    "active flags set": ("messages", "active", "count(*) FILTER (WHERE active IS NULL)"),
    "delegate markers written": (
        "sessions",
        "model_config",
        "count(CASE WHEN json_valid(model_config) "
        "THEN json_extract(model_config, '$._delegate_from') END)",
    ),
    "duplicate titles renamed": ("sessions", "title", "count(title) - count(DISTINCT title)"),
    "message ids minted": ("messages", "message_uid", "count(message_uid)"),
    "prompts moved": ("sessions", "system_prompt", "count(system_prompt)"),
    "usage rows seeded or merged": ("session_model_usage", "session_id", "count(*)"),
}
"""Repair -> table, column, and what is counted; a repair changes that number."""

JSON_COLUMNS = {
    "sessions": {"model_config", "origin_json"},
    "messages": {
        *("tool_calls", "reasoning_details", "codex_reasoning_items", "codex_message_items"),
        *("display_metadata", "absorbed_message_uids", "tool_call_uids"),
    },
}


def row_counts(driver: Any) -> dict[str, int]:
    """Return how many rows the tables of `CONTENT` have."""
    present = [table for table in CONTENT if columns(driver, table)]
    return {table: _count(driver, table, {table: "count(*)"})[table] for table in present}


def repair_counts(driver: Any, unchanged: Set[str] = frozenset()) -> Counter[str]:
    """Return the numbers that the repairs change, those in `unchanged` tables aside."""
    counts: Counter[str] = Counter()
    for table in sorted({table for table, _, _ in REPAIRS.values()} - unchanged):
        present = columns(driver, table)
        wanted = {
            name: counted
            for name, (place, column, counted) in REPAIRS.items()
            if place == table and column in present
        }
        counts.update(_count(driver, table, wanted))
    return counts


def repaired_rows(before: Counter[str], after: Counter[str]) -> dict[str, int]:
    """Return how many rows each repair changed; what is not counted after it did not change."""
    changes = {name: abs(after[name] - before[name]) for name in sorted(after)}
    return {name: number for name, number in changes.items() if number}


def undecodable(driver: Any) -> dict[str, int]:
    """Return how many values of each JSON column are no JSON."""
    found: dict[str, int] = {}
    for table, names in JSON_COLUMNS.items():
        wanted = {
            f"{table}.{column}": f"count(CASE WHEN NOT json_valid({column}) THEN {column} END)"
            for column in columns(driver, table) & names
        }
        found |= _count(driver, table, wanted)
    return {name: number for name, number in found.items() if number}


def violations(driver: Any) -> Counter[str]:
    """Count the rows that refer to a missing row, per relation."""
    found: Counter[str] = Counter()
    for table in tables(driver):
        references = [
            tuple(row[2:5]) for row in driver.execute(f'PRAGMA foreign_key_list("{table}")')
        ]
        if table == "messages" and references == [("sessions", "session_id", "id")]:
            (lost,) = driver.execute(_LOST_MESSAGES).fetchone()
            found.update({"messages -> sessions": lost} if lost else {})
        elif references:
            broken = driver.execute(f'PRAGMA foreign_key_check("{table}")')
            found.update(f"{row[0]} -> {row[2]}" for row in broken)
    return found


_LOST_MESSAGES = """
    SELECT coalesce(sum(number), 0)
    FROM (SELECT session_id, count(*) AS number FROM messages GROUP BY session_id) AS counted
    WHERE session_id IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM sessions WHERE sessions.id = counted.session_id)
"""
# An index of `session_id` answers that; the check of SQLite's own reads every message.


def root(driver: Any, table: str) -> int:
    """Return the page at which a table begins; one that is made anew has another."""
    query = "SELECT rootpage FROM sqlite_master WHERE type = 'table' AND name = ?"
    (page,) = driver.execute(query, (table,)).fetchone()
    return int(page)


def schema(driver: Any) -> set[str]:
    """Return the names of tables, columns (`table.column`) and indexes, full-text ones aside."""
    named = {f"{table}.{name}" for table in tables(driver) for name in columns(driver, table)}
    return named | tables(driver) | objects(driver, "index")


def tables(driver: Any) -> set[str]:
    """Return the names of the tables, full-text ones aside."""
    derived = ("messages_fts", search_upkeep.TRASH)
    return {name for name in objects(driver, "table") if not name.startswith(derived)}


def _count(driver: Any, table: str, wanted: dict[str, str]) -> dict[str, int]:
    """Return what aggregates say about a table, under their names, in one pass over it."""
    if not wanted:
        return {}
    (row,) = driver.execute(f"SELECT {', '.join(wanted.values())} FROM {table}")
    return dict(zip(wanted, row, strict=True))
