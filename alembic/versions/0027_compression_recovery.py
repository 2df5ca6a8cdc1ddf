"""Let a session whose compression was switched off try again after a time."""

from alembic import op

from hermes_orm.dialects.revising import DOUBLE, Schema, optional

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None

COLUMNS = (optional("compression_recovery_deadline", DOUBLE),)


def schema(db: Schema) -> None:
    db.add_columns("sessions", *COLUMNS)


def revert(db: Schema) -> None:
    db.drop_columns("sessions", *COLUMNS)


def upgrade() -> None:
    schema(Schema.of(op))


def downgrade() -> None:
    revert(Schema.of(op))
