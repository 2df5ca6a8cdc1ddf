"""Leave scheduled sessions out of substring search; search only the beginning of tool results.

Only search objects change; they are made and filled at the end of the run.
"""

from alembic import op

from hermes_orm.dialects.revising import Schema

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None
search_layout = "2"


def schema(db: Schema) -> None:
    """Change no table."""


def revert(db: Schema) -> None:
    """Change no table."""


def upgrade() -> None:
    schema(Schema.of(op))


def downgrade() -> None:
    revert(Schema.of(op))
