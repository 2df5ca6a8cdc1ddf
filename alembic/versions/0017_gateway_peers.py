"""Find the session of a chat: who talks, where, in which thread; let failed compressions cool."""

from alembic import op

from hermes_orm.dialects.revising import DOUBLE, TEXT, Schema, optional

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

COLUMNS = (
    optional("session_key", TEXT),
    optional("chat_id", TEXT),
    optional("chat_type", TEXT),
    optional("thread_id", TEXT),
    optional("compression_failure_cooldown_until", DOUBLE),
    optional("compression_failure_error", TEXT),
)


def schema(db: Schema) -> None:
    db.add_columns("sessions", *COLUMNS)
    db.create_index("idx_sessions_session_key", "sessions", ["session_key", "started_at DESC"])
    db.create_index(
        "idx_sessions_gateway_peer",
        "sessions",
        ["source", "user_id", "chat_id", "chat_type", "thread_id", "started_at DESC"],
    )
    db.create_index("idx_sessions_handoff_state", "sessions", ["handoff_state", "started_at"])


def revert(db: Schema) -> None:
    db.drop_indexes(
        "idx_sessions_session_key", "idx_sessions_gateway_peer", "idx_sessions_handoff_state"
    )
    db.drop_columns("sessions", *COLUMNS)


def upgrade() -> None:
    schema(Schema.of(op))


def downgrade() -> None:
    revert(Schema.of(op))
