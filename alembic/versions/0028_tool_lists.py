"""Keep the tools that a session was started with."""

from alembic import op

from hermes_orm.dialects.revising import TEXT, Schema, optional

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None

COLUMNS = (optional("tool_names", TEXT),)


def schema(db: Schema) -> None:
    db.add_columns("sessions", *COLUMNS)


def revert(db: Schema) -> None:
    db.drop_columns("sessions", *COLUMNS)


def upgrade() -> None:
    schema(Schema.of(op))


def downgrade() -> None:
    revert(Schema.of(op))
