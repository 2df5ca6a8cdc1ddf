"""Find messages by any part of a word, too.

Only search objects change; they are made and filled at the end of the run.
"""

from alembic import op

from hermes_orm.dialects.revising import Schema

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None
search_layout = "B"


def schema(db: Schema) -> None:
    """Change no table."""


def revert(db: Schema) -> None:
    """Change no table."""


def upgrade() -> None:
    schema(Schema.of(op))


def downgrade() -> None:
    revert(Schema.of(op))
