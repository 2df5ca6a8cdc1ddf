"""Keep the provider's reason for the end of each answer.

Messages that exist have none.
"""

from alembic import op

from hermes_orm.dialects.revising import TEXT, Schema, optional

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

COLUMNS = (optional("finish_reason", TEXT),)


def schema(db: Schema) -> None:
    db.add_columns("messages", *COLUMNS)


def revert(db: Schema) -> None:
    db.drop_columns("messages", *COLUMNS)


def upgrade() -> None:
    schema(Schema.of(op))


def downgrade() -> None:
    revert(Schema.of(op))
