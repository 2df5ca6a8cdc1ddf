"""Let delegated work run in the background and deliver its result; know a session's profile."""

from alembic import op

from hermes_orm.dialects.revising import BIGINT, DOUBLE, INTEGER, TEXT, Schema, optional, required

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

DELEGATIONS = (
    required("delegation_id", TEXT),
    required("origin_session", TEXT),
    required("origin_ui_session_id", TEXT, "''"),
    optional("parent_session_id", TEXT),
    required("state", TEXT),
    required("dispatched_at", DOUBLE),
    optional("completed_at", DOUBLE),
    required("updated_at", DOUBLE),
    optional("event_json", TEXT),
    optional("result_json", TEXT),
    required("delivery_state", TEXT, "'pending'"),
    required("delivery_attempts", INTEGER, "0"),
    optional("delivered_at", DOUBLE),
    optional("owner_pid", BIGINT),
    optional("owner_started_at", BIGINT),
    optional("task_json", TEXT),
    optional("delivery_claim", TEXT),
    optional("delivery_claimed_at", DOUBLE),
)
SESSIONS = (
    required("compression_fallback_streak", INTEGER, "0"),
    optional("profile_name", TEXT),
)


def schema(db: Schema) -> None:
    db.create_table("async_delegations", DELEGATIONS, key=("delegation_id",))
    db.create_index(
        "idx_async_delegations_delivery", "async_delegations", ["delivery_state", "completed_at"]
    )
    db.add_columns("sessions", *SESSIONS)


def revert(db: Schema) -> None:
    db.drop_columns("sessions", *SESSIONS)
    db.drop_table("async_delegations")


def upgrade() -> None:
    schema(Schema.of(op))


def downgrade() -> None:
    revert(Schema.of(op))
