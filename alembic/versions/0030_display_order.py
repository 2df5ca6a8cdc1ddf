"""Show the generations of one message once; leave delegated work out of substring search.

Programs compute the identities for display when they first show a message; going back loses nothing
that can't be computed again, but the origin of delegations and the profile of a transport, and is
refused when there are any. The search objects are made and filled at the end of the run.
"""

from alembic import op

from hermes_orm.dialects.revising import BIGINT, BYTES, TEXT, Schema, optional, required

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None
search_layout = "3"

MESSAGES = (optional("display_identity", BYTES), optional("display_order", BIGINT))
TRANSPORT = optional("transport_profile", TEXT)
ORIGIN = required("origin_session_id", TEXT, "''")
VISIBLE = "(active = 1 OR compacted = 1)"


def schema(db: Schema) -> None:
    db.add_columns("messages", *MESSAGES)
    db.create_index(
        "idx_messages_display_page",
        "messages",
        ["session_id", "display_order", "active DESC", "id DESC"],
        where="active = 1 OR compacted = 1",
    )
    db.create_index(
        "idx_messages_display_backfill",
        "messages",
        ["session_id"],
        where=f"{VISIBLE} AND (display_order IS NULL OR display_identity IS NULL)",
    )
    db.create_index(
        "idx_messages_display_identity",
        "messages",
        ["session_id", "display_identity", "display_order"],
        where=f"display_identity IS NOT NULL AND {VISIBLE}",
    )
    db.frozen.create_triggers_0030(db.connection)
    db.add_columns("sessions", TRANSPORT)
    db.create_index("idx_sessions_tool_names", "sessions", ["tool_names"])
    db.create_index(
        "idx_sessions_effective_activity",
        "sessions",
        ["coalesce(last_activity_at, started_at) DESC", "started_at DESC"],
    )
    db.add_columns("async_delegations", ORIGIN)
    db.require_value("async_delegations", ORIGIN)


def revert(db: Schema) -> None:
    db.drop_columns("async_delegations", ORIGIN)
    db.drop_indexes("idx_sessions_effective_activity", "idx_sessions_tool_names")
    db.drop_columns("sessions", TRANSPORT)
    db.frozen.drop_triggers_0030(db.connection)
    db.drop_indexes(
        "idx_messages_display_page",
        "idx_messages_display_backfill",
        "idx_messages_display_identity",
    )
    db.drop_columns("messages", *MESSAGES, derived=True)


def upgrade() -> None:
    schema(Schema.of(op))


def downgrade() -> None:
    revert(Schema.of(op))
