"""Find messages by their tools and calls, too; hand a session over to another platform.

The search objects are made and filled at the end of the run.
"""

from alembic import op

from hermes_orm.dialects.revising import TEXT, Schema, optional

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None
search_layout = "inline"

COLUMNS = (
    optional("handoff_state", TEXT),
    optional("handoff_platform", TEXT),
    optional("handoff_error", TEXT),
)


def schema(db: Schema) -> None:
    db.add_columns("sessions", *COLUMNS)


def revert(db: Schema) -> None:
    db.drop_columns("sessions", *COLUMNS)


def upgrade() -> None:
    schema(Schema.of(op))


def downgrade() -> None:
    revert(Schema.of(op))
