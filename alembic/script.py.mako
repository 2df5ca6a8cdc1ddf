"""${message}

What changes for a user: …
"""

from alembic import op

from hermes_orm.dialects.revising import Schema
${imports if imports else ""}
revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = ${repr(branch_labels)}
depends_on = ${repr(depends_on)}


def schema(db: Schema) -> None:
    """Create and add what is missing: runs again over any shape of the database."""


def revert(db: Schema) -> None:
    """Take it back; what users would lose is asked for."""


def upgrade() -> None:
    schema(Schema.of(op))


def downgrade() -> None:
    revert(Schema.of(op))
