"""Keep the items of a message that Codex wants back."""

from alembic import op

from hermes_orm.dialects.revising import TEXT, Schema, optional

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

COLUMNS = (optional("codex_message_items", TEXT),)


def schema(db: Schema) -> None:
    db.add_columns("messages", *COLUMNS)


def revert(db: Schema) -> None:
    db.drop_columns("messages", *COLUMNS)


def upgrade() -> None:
    schema(Schema.of(op))


def downgrade() -> None:
    revert(Schema.of(op))
