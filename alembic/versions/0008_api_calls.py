"""Count the calls that a session made to its provider."""

from alembic import op

from hermes_orm.dialects.revising import BIGINT, Schema, optional

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

COLUMNS = (optional("api_call_count", BIGINT, "0"),)


def schema(db: Schema) -> None:
    db.add_columns("sessions", *COLUMNS)


def revert(db: Schema) -> None:
    db.drop_columns("sessions", *COLUMNS)


def upgrade() -> None:
    schema(Schema.of(op))


def downgrade() -> None:
    revert(Schema.of(op))
