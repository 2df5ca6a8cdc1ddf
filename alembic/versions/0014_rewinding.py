"""Let users take turns back and archive sessions; lock a session while it is compressed.

Messages of files whose column `active` may be NULL become visible, and the column stays filled.
Going back makes messages visible that were taken back: it is refused when there are any.
"""

from alembic import op

from hermes_orm.dialects.revising import DOUBLE, INTEGER, TEXT, Schema, optional, required

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

LOCKS = (
    required("session_id", TEXT),
    required("holder", TEXT),
    required("acquired_at", DOUBLE),
    required("expires_at", DOUBLE),
)
SESSIONS = (
    optional("cwd", TEXT),
    required("rewind_count", INTEGER, "0"),
    required("archived", INTEGER, "0"),
)
ACTIVE = required("active", INTEGER, "1")


def schema(db: Schema) -> None:
    db.create_table("compression_locks", LOCKS, key=("session_id",))
    db.create_index("idx_compression_locks_expires", "compression_locks", ["expires_at"])
    db.add_columns("sessions", *SESSIONS)
    db.add_columns("messages", ACTIVE)
    db.require_value("messages", ACTIVE)
    db.create_index(
        "idx_messages_session_active", "messages", ["session_id", "active", "timestamp"]
    )


def revert(db: Schema) -> None:
    db.drop_indexes("idx_messages_session_active")
    db.drop_columns("messages", ACTIVE)
    db.drop_columns("sessions", *SESSIONS)
    db.drop_table("compression_locks", disposable=True)


def upgrade() -> None:
    schema(Schema.of(op))


def downgrade() -> None:
    revert(Schema.of(op))
