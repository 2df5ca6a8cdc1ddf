"""Count the usage of auxiliary tasks apart from the main loop; keep what was sent to the provider.

Usage that exists belongs to the main loop, the empty task; rows that become equal in their key are
summed. Going back sums the tasks of a session: it is refused when there are any.
"""

from collections.abc import Sequence

from alembic import op

from hermes_orm.dialects.revising import BIGINT, DOUBLE, TEXT, Column, Schema, optional, required

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None

TASK = required("task", TEXT, "''")
COLUMNS = (
    required("session_id", TEXT, references="sessions.id", on_delete="CASCADE"),
    required("model", TEXT),
    required("billing_provider", TEXT, "''"),
    required("billing_base_url", TEXT, "''"),
    required("billing_mode", TEXT, "''"),
    TASK,
    required("api_call_count", BIGINT, "0"),
    required("input_tokens", BIGINT, "0"),
    required("output_tokens", BIGINT, "0"),
    required("cache_read_tokens", BIGINT, "0"),
    required("cache_write_tokens", BIGINT, "0"),
    required("reasoning_tokens", BIGINT, "0"),
    required("estimated_cost_usd", DOUBLE, "0"),
    required("actual_cost_usd", DOUBLE, "0"),
    optional("cost_status", TEXT),
    optional("cost_source", TEXT),
    optional("first_seen", DOUBLE),
    optional("last_seen", DOUBLE),
)
KEY = ("session_id", "model", "billing_provider", "billing_base_url", "billing_mode", "task")
API_CONTENT = optional("api_content", TEXT)


def schema(db: Schema) -> None:
    if db.primary_key("session_model_usage") != KEY:
        db.add_columns("session_model_usage", TASK)
        change_key(db, COLUMNS, KEY)
    db.add_columns("messages", API_CONTENT)


def revert(db: Schema) -> None:
    db.drop_columns("messages", API_CONTENT)
    db.confirm_loss("session_model_usage", "task <> ''", "which usage is of auxiliary tasks")
    change_key(db, [column for column in COLUMNS if column is not TASK], KEY[:-1])


def change_key(db: Schema, columns: Sequence[Column], key: Sequence[str]) -> None:
    """Make the table anew with one row per key: sums, the first and the last time, a status."""
    merged = {
        **{column.name: f"sum({column.name})" for column in columns},
        "cost_status": "max(cost_status)",
        "cost_source": "max(cost_source)",
        "first_seen": "min(first_seen)",
        "last_seen": "max(last_seen)",
        "session_id": "session_id",
        "model": "model",
        **{name: f"coalesce({name}, '')" for name in key[2:]},
    }
    db.replace_table(
        "session_model_usage",
        merged,
        f"session_model_usage GROUP BY {', '.join(merged[name] for name in key)}",
        lambda: db.create_table("session_model_usage", columns, key=key),
    )
    db.create_index("idx_session_model_usage_session", "session_model_usage", ["session_id"])
    db.create_index("idx_session_model_usage_model", "session_model_usage", ["model"])


def upgrade() -> None:
    schema(Schema.of(op))


def downgrade() -> None:
    revert(Schema.of(op))
