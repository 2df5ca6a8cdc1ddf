"""Create sessions, their transcripts and full-text search over what was said.

A new database can store sessions with their messages, and find messages by their words.
"""

from alembic import op

from hermes_orm.dialects.revising import BIGINT, DOUBLE, INTEGER, TEXT, Schema, optional, required

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None
search_layout = "A"

SESSIONS = (
    required("id", TEXT),
    required("source", TEXT),
    optional("user_id", TEXT),
    optional("model", TEXT),
    optional("model_config", TEXT),
    optional("system_prompt", TEXT),
    optional("parent_session_id", TEXT, references="sessions.id"),
    required("started_at", DOUBLE),
    optional("ended_at", DOUBLE),
    optional("end_reason", TEXT),
    optional("message_count", BIGINT, "0"),
    optional("tool_call_count", BIGINT, "0"),
    optional("input_tokens", BIGINT, "0"),
    optional("output_tokens", BIGINT, "0"),
)
MESSAGES = (
    required("id", BIGINT),
    required("session_id", TEXT, references="sessions.id"),
    required("role", TEXT),
    optional("content", TEXT),
    optional("tool_call_id", TEXT),
    optional("tool_calls", TEXT),
    optional("tool_name", TEXT),
    required("timestamp", DOUBLE),
    optional("token_count", BIGINT),
)


def schema(db: Schema) -> None:
    db.create_table("schema_version", (required("version", INTEGER),))
    db.run(
        "INSERT INTO schema_version (version) "
        "SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM schema_version)"
    )
    db.create_table("sessions", SESSIONS, key=("id",))
    db.create_index("idx_sessions_source", "sessions", ["source"])
    db.create_index("idx_sessions_parent", "sessions", ["parent_session_id"])
    db.create_index("idx_sessions_started", "sessions", ["started_at DESC"])
    db.create_table("messages", MESSAGES, key=("id",), sqlite_autoincrement=True)
    db.create_index("idx_messages_session", "messages", ["session_id", "timestamp"])


def revert(db: Schema) -> None:
    db.drop_table("messages")
    db.drop_table("sessions")
    db.drop_table("schema_version", disposable=True)


def upgrade() -> None:
    schema(Schema.of(op))


def downgrade() -> None:
    revert(Schema.of(op))
