"""Let a session have a title.

Sessions that exist have none.
"""

from alembic import op

from hermes_orm.dialects.revising import TEXT, Schema, optional

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

COLUMNS = (optional("title", TEXT),)


def schema(db: Schema) -> None:
    db.add_columns("sessions", *COLUMNS)


def revert(db: Schema) -> None:
    db.drop_columns("sessions", *COLUMNS)


def upgrade() -> None:
    schema(Schema.of(op))


def downgrade() -> None:
    revert(Schema.of(op))
