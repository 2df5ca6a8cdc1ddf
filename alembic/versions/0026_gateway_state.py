"""Let gateways tell that they are alive, and count the conversations of a peer.

Generations of a conversation only ever grow: going back is refused when there are any.
"""

from alembic import op

from hermes_orm.dialects.revising import BIGINT, DOUBLE, INTEGER, TEXT, Schema, required

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None

GENERATION = required("git_metadata_generation", INTEGER, "0")
SUMMARY = required("_compressed_summary", INTEGER, "0")
HYGIENE = (required("session_key", TEXT), required("failure_streak", INTEGER, "0"))
HEARTBEATS = (
    required("backend_id", TEXT),
    required("pid", BIGINT),
    required("started_at", DOUBLE),
    required("last_heartbeat", DOUBLE),
    required("profile", TEXT, "''"),
    required("host", TEXT, "''"),
)
GENERATIONS = (
    required("source", TEXT),
    required("session_key", TEXT),
    required("generation", INTEGER, "0"),
)


def schema(db: Schema) -> None:
    db.add_columns("sessions", GENERATION)
    db.add_columns("messages", SUMMARY)
    db.create_table("gateway_hygiene_state", HYGIENE, key=("session_key",))
    db.create_table("gateway_heartbeats", HEARTBEATS, key=("backend_id",))
    db.create_table("conversation_generations", GENERATIONS, key=("source", "session_key"))


def revert(db: Schema) -> None:
    db.drop_table("conversation_generations")
    db.drop_table("gateway_heartbeats", disposable=True)
    db.drop_table("gateway_hygiene_state", disposable=True)
    db.drop_columns("messages", SUMMARY)
    db.drop_columns("sessions", GENERATION, derived=True)


def upgrade() -> None:
    schema(Schema.of(op))


def downgrade() -> None:
    revert(Schema.of(op))
