"""Keep reasoning text that a provider wants back, and settings of the store.

Files of development builds that used the number 7 for `api_call_count` get their column here, too.
"""

from alembic import op

from hermes_orm.dialects.revising import TEXT, Schema, optional, required

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

REASONING_CONTENT = optional("reasoning_content", TEXT)


def schema(db: Schema) -> None:
    db.add_columns("messages", REASONING_CONTENT)
    db.create_table("state_meta", (required("key", TEXT), optional("value", TEXT)), key=("key",))


def revert(db: Schema) -> None:
    db.drop_columns("messages", REASONING_CONTENT)
    db.drop_table("state_meta")


def upgrade() -> None:
    schema(Schema.of(op))


def downgrade() -> None:
    revert(Schema.of(op))
