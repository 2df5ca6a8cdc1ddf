"""Triggers of the schema that other programs share: display order and message uids.

Rows of a session with the same `display_identity` are generations of one logical message; their
`display_order` is the smallest id among those that are visible (live or archived by compaction).
Programs compute identities when they first display a row; here NULL means "not computed yet".
"""

from collections.abc import Collection

from sqlalchemy import Connection

_IDENTIFYING = (
    "role",
    "content",
    "timestamp",
    "tool_call_id",
    "tool_calls",
    "tool_name",
    "display_kind",
)
"""Columns that take part in a row's display identity."""


def _visible(row: str) -> str:
    return f"({row}.active = 1 OR {row}.compacted = 1)"


def _group(row: str) -> str:
    """Condition on `messages`: the visible rows that share the identity of `row`."""
    return (
        f"session_id = {row}.session_id AND display_identity = {row}.display_identity "
        "AND (active = 1 OR compacted = 1)"
    )


def _join(row: str) -> str:
    """Give a row and its group the smallest order among them; the row counts with its id."""
    return f"""
        UPDATE messages
        SET display_order = min({row}.id, coalesce(
            (SELECT min(display_order) FROM messages WHERE {_group(row)} AND id <> {row}.id),
            {row}.id
        ))
        WHERE {_visible(row)} AND (id = {row}.id OR {_group(row)})
    """


def _leave(row: str) -> str:
    """Give the group that a row has left the smallest id that remains."""
    return f"""
        UPDATE messages
        SET display_order = (SELECT min(id) FROM messages WHERE {_group(row)})
        WHERE {_group(row)}
    """


def _triggers() -> dict[str, tuple[str, str]]:
    changed = " OR ".join(f"OLD.{column} IS NOT NEW.{column}" for column in _IDENTIFYING)
    return {
        "messages_display_order_insert": (
            "AFTER INSERT ON messages WHEN NEW.display_order IS NULL",
            f"""
            UPDATE messages
            SET display_order = coalesce(
                (SELECT min(display_order) FROM messages WHERE {_group("NEW")}), NEW.id
            )
            WHERE id = NEW.id
            """,
        ),
        "messages_display_visibility_update": (
            "AFTER UPDATE OF active, compacted ON messages "
            f"WHEN {_visible('OLD')} <> {_visible('NEW')}",
            f"{_join('NEW')}; {_leave('NEW')} AND NOT {_visible('NEW')}",
        ),
        "messages_display_identity_update": (
            f"AFTER UPDATE OF {', '.join(_IDENTIFYING)} ON messages WHEN {changed}",
            f"""
            UPDATE messages SET display_identity = NULL, display_order = NULL
            WHERE id = NEW.id OR {_group("OLD")}
            """,
        ),
        # Most leave no group: an UPDATE that finds nothing still opens every index of the table.
        "messages_display_identity_delete": (
            f"AFTER DELETE ON messages WHEN {_visible('OLD')} "
            f"AND EXISTS (SELECT 1 FROM messages WHERE {_group('OLD')})",
            _leave("OLD"),
        ),
        "messages_message_uid_insert": (
            "AFTER INSERT ON messages WHEN NEW.message_uid IS NULL",
            "UPDATE messages SET message_uid = lower(hex(randomblob(16))) WHERE id = NEW.id",
        ),
    }


DISPLAY_TRIGGERS = frozenset(_triggers())


def create_display_triggers(
    connection: Connection, names: Collection[str] = DISPLAY_TRIGGERS
) -> None:
    """Create triggers for display order and message uids, in place of others of their names."""
    for name, (event, action) in _triggers().items():
        if name in names:
            connection.exec_driver_sql(f"DROP TRIGGER IF EXISTS {name}")
            connection.exec_driver_sql(f"CREATE TRIGGER {name} {event} BEGIN {action}; END")
