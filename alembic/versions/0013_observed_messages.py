"""Tell messages that the agent only saw in a group from those addressed to it."""

from alembic import op

from hermes_orm.dialects.revising import INTEGER, Schema, optional

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

COLUMNS = (optional("observed", INTEGER, "0"),)


def schema(db: Schema) -> None:
    db.add_columns("messages", *COLUMNS)


def revert(db: Schema) -> None:
    db.drop_columns("messages", *COLUMNS)


def upgrade() -> None:
    schema(Schema.of(op))


def downgrade() -> None:
    revert(Schema.of(op))
