"""Hide the sessions of delegated work from lists; archive messages by compaction; know the branch.

A child session that neither continues, nor branches off, nor replaces its parent is delegated work:
its configuration gets the marker `_delegate_from` with the parent's id. An ended, untitled, short
session that has tool results, and that nobody and nothing refers to, gets `__orphaned__`. A
configuration that is no JSON object stays as it is. Going back removes the first kind of marker.
"""

import json
from typing import Any

from alembic import op

from hermes_orm.dialects.revising import INTEGER, TEXT, Schema, optional, required

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

MARKER = "_delegate_from"
ORPHANED = "__orphaned__"
REPLACED = {
    "session_reset",
    "session_switch",
    "idle",
    "daily",
    "suspended",
    "resume_pending_expired",
}
"""Reasons for which a parent ended when a child took its place."""

SESSIONS = (optional("git_branch", TEXT), optional("git_repo_root", TEXT))
COMPACTED = required("compacted", INTEGER, "0")


def schema(db: Schema) -> None:
    db.add_columns("messages", COMPACTED)
    db.add_columns("sessions", *SESSIONS)


def fill(db: Schema) -> None:
    if db.offline:
        db.omit("marking the sessions of delegated work")
        return
    mark_delegates(db)
    if db.rows("SELECT 1 FROM sessions WHERE title IS NOT NULL LIMIT 1"):
        mark_orphans(db)  # without titles, nothing tells an orphan from a short chat


def revert(db: Schema) -> None:
    if not db.offline:
        unmark_delegates(db)
    db.drop_columns("messages", COMPACTED)
    db.drop_columns("sessions", *SESSIONS)


def mark_delegates(db: Schema) -> None:
    for batch in db.batches(children(db)):
        for child in batch:
            config = decoded(child.config)
            if config is not None and is_delegate(child, config):
                write(db, child.id, {**config, MARKER: child.parent_session_id})


def mark_orphans(db: Schema) -> None:
    count = 0
    for batch in db.batches(orphans(db)):
        for session in batch:
            config = decoded(session.config)
            if config is not None and not has_any(config, MARKER, "_branched_from"):
                write(db, session.id, {**config, MARKER: ORPHANED})
                count += 1
    if count:
        db.note("%d sessions of delegated work without a parent are hidden from lists", count)


def unmark_delegates(db: Schema) -> None:
    for batch in db.batches(children(db)):
        for child in batch:
            config = decoded(child.config)
            if config is not None and config.get(MARKER) == child.parent_session_id:
                write(db, child.id, {k: v for k, v in config.items() if k != MARKER})


def children(db: Schema) -> str:
    key = "session_key" if "session_key" in db.columns("sessions") else "NULL"
    return f"""
        SELECT child.id, child.parent_session_id, child.started_at,
            {db.frozen.OCTETS.format(text="child.model_config")} AS config,
            parent.end_reason AS parent_end_reason, parent.ended_at AS parent_ended_at,
            {own("child", key)} AS session_key, {own("parent", key)} AS parent_key
        FROM sessions AS child LEFT JOIN sessions AS parent ON parent.id = child.parent_session_id
        WHERE child.parent_session_id IS NOT NULL AND child.id > :after ORDER BY child.id
    """


def orphans(db: Schema) -> str:
    peer = [name for name in ("session_key", "chat_id") if name in db.columns("sessions")]
    return f"""
        SELECT id, {db.frozen.OCTETS.format(text="model_config")} AS config FROM sessions
        WHERE parent_session_id IS NULL AND title IS NULL AND message_count <= 25
        AND source <> 'cron' AND ended_at IS NOT NULL
        AND {" AND ".join(f"{name} IS NULL" for name in ("user_id", *peer))}
        AND EXISTS (SELECT 1 FROM messages WHERE session_id = sessions.id AND role = 'tool')
        AND NOT EXISTS (SELECT 1 FROM sessions AS c WHERE c.parent_session_id = sessions.id)
        AND id > :after ORDER BY id
    """


def own(alias: str, column: str) -> str:
    return column if column == "NULL" else f"{alias}.{column}"


def is_delegate(child: Any, config: dict[str, Any]) -> bool:
    reason, ended_at = child.parent_end_reason, child.parent_ended_at
    branched = reason == "branched" and ended_at is not None and child.started_at >= ended_at
    replaced = reason in REPLACED and child.session_key and child.session_key == child.parent_key
    marked = has_any(config, MARKER, "_branched_from", "_reset_from")
    return not (branched or replaced or marked or reason == "compression")


def decoded(octets: bytes | None) -> dict[str, Any] | None:
    """Return a configuration, or None when it is no JSON object that can be written again."""
    if octets is None:
        return {}
    try:
        config = json.loads(octets.decode())
        json.dumps(config, allow_nan=False)
    except (ValueError, RecursionError):
        return None
    return config if isinstance(config, dict) else None


def has_any(config: dict[str, Any], *markers: str) -> bool:
    return any(config.get(marker) is not None for marker in markers)


def write(db: Schema, session_id: str, config: dict[str, Any]) -> None:
    db.run(
        "UPDATE sessions SET model_config = :config WHERE id = :id",
        config=json.dumps(config),
        id=session_id,
    )


def upgrade() -> None:
    db = Schema.of(op)
    schema(db)
    fill(db)


def downgrade() -> None:
    revert(Schema.of(op))
