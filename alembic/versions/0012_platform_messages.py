"""Know a message by its id on the chat platform."""

from alembic import op

from hermes_orm.dialects.revising import TEXT, Schema, optional

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

COLUMNS = (optional("platform_message_id", TEXT),)


def schema(db: Schema) -> None:
    db.add_columns("messages", *COLUMNS)
    db.create_index(
        "idx_messages_platform_msg_id",
        "messages",
        ["session_id", "platform_message_id"],
        where="platform_message_id IS NOT NULL",
    )


def revert(db: Schema) -> None:
    db.drop_indexes("idx_messages_platform_msg_id")
    db.drop_columns("messages", *COLUMNS)


def upgrade() -> None:
    schema(Schema.of(op))


def downgrade() -> None:
    revert(Schema.of(op))
