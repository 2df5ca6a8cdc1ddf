"""Pin sessions; give messages a form of display; keep the text of search once instead of twice.

The search objects are made and filled at the end of the run.
"""

from alembic import op

from hermes_orm.dialects.revising import INTEGER, TEXT, Schema, optional, required

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None
search_layout = "1"

SESSIONS = (
    required("compression_ineffective_count", INTEGER, "0"),
    required("pinned", INTEGER, "0"),
)
MESSAGES = (optional("display_kind", TEXT), optional("display_metadata", TEXT))


def schema(db: Schema) -> None:
    db.add_columns("sessions", *SESSIONS)
    db.add_columns("messages", *MESSAGES)
    db.create_index("idx_messages_session_id", "messages", ["session_id", "id"])


def revert(db: Schema) -> None:
    db.drop_indexes("idx_messages_session_id")
    db.drop_columns("messages", *MESSAGES)
    db.drop_columns("sessions", *SESSIONS)


def upgrade() -> None:
    schema(Schema.of(op))


def downgrade() -> None:
    revert(Schema.of(op))
