"""Keep cached and reasoning tokens of a session, its billing route and its cost.

Sessions that exist have no cost and count 0 such tokens.
"""

from alembic import op

from hermes_orm.dialects.revising import BIGINT, DOUBLE, TEXT, Schema, optional

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

COLUMNS = (
    optional("cache_read_tokens", BIGINT, "0"),
    optional("cache_write_tokens", BIGINT, "0"),
    optional("reasoning_tokens", BIGINT, "0"),
    optional("billing_provider", TEXT),
    optional("billing_base_url", TEXT),
    optional("billing_mode", TEXT),
    optional("estimated_cost_usd", DOUBLE),
    optional("actual_cost_usd", DOUBLE),
    optional("cost_status", TEXT),
    optional("cost_source", TEXT),
    optional("pricing_version", TEXT),
)


def schema(db: Schema) -> None:
    db.add_columns("sessions", *COLUMNS)


def revert(db: Schema) -> None:
    db.drop_columns("sessions", *COLUMNS)


def upgrade() -> None:
    schema(Schema.of(op))


def downgrade() -> None:
    revert(Schema.of(op))
