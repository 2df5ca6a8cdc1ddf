"""Keep a model's reasoning beside its answer."""

from alembic import op

from hermes_orm.dialects.revising import TEXT, Schema, optional

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

COLUMNS = (
    optional("reasoning", TEXT),
    optional("reasoning_details", TEXT),
    optional("codex_reasoning_items", TEXT),
)


def schema(db: Schema) -> None:
    db.add_columns("messages", *COLUMNS)


def revert(db: Schema) -> None:
    db.drop_columns("messages", *COLUMNS)


def upgrade() -> None:
    schema(Schema.of(op))


def downgrade() -> None:
    revert(Schema.of(op))
