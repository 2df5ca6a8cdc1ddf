"""List the sessions of one surface faster."""

from alembic import op

from hermes_orm.dialects.revising import Schema

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def schema(db: Schema) -> None:
    db.create_index("idx_sessions_source_id", "sessions", ["source", "id"])


def revert(db: Schema) -> None:
    db.drop_indexes("idx_sessions_source_id")


def upgrade() -> None:
    schema(Schema.of(op))


def downgrade() -> None:
    revert(Schema.of(op))
