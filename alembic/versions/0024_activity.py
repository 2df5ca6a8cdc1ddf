"""Show what a session is doing, and when it last did something."""

from alembic import op

from hermes_orm.dialects.revising import DOUBLE, TEXT, Schema, optional

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None

COLUMNS = (
    optional("last_activity_at", DOUBLE),
    optional("last_activity_description", TEXT),
    optional("last_activity_provenance", TEXT),
)


def schema(db: Schema) -> None:
    db.add_columns("sessions", *COLUMNS)
    db.create_index(
        "idx_messages_assistant_calls_by_session",
        "messages",
        ["session_id"],
        where="role = 'assistant' AND tool_calls IS NOT NULL",
    )


def revert(db: Schema) -> None:
    db.drop_indexes("idx_messages_assistant_calls_by_session")
    db.drop_columns("sessions", *COLUMNS)


def upgrade() -> None:
    schema(Schema.of(op))


def downgrade() -> None:
    revert(Schema.of(op))
