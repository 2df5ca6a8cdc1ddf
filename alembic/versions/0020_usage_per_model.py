"""Count tokens and cost per model and billing route.

What a session has used so far is attributed to its model; a session with rows of its own keeps
them. Going back loses the rows per model; the totals of the sessions stay.
"""

from alembic import op

from hermes_orm.dialects.revising import BIGINT, DOUBLE, TEXT, Schema, optional, required

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

COLUMNS = (
    required("session_id", TEXT, references="sessions.id", on_delete="CASCADE"),
    required("model", TEXT),
    required("billing_provider", TEXT, "''"),
    required("billing_base_url", TEXT, "''"),
    required("billing_mode", TEXT, "''"),
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
KEY = ("session_id", "model", "billing_provider", "billing_base_url", "billing_mode")
TOTALS = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
)


def schema(db: Schema) -> None:
    db.create_table("session_model_usage", COLUMNS, key=KEY)
    db.create_index("idx_session_model_usage_session", "session_model_usage", ["session_id"])
    db.create_index("idx_session_model_usage_model", "session_model_usage", ["model"])


def fill(db: Schema) -> None:
    totals = {name: f"coalesce({name}, 0)" for name in TOTALS}
    values = {
        "session_id": "id",
        "model": "coalesce(model, 'unknown')",
        "billing_provider": "coalesce(billing_provider, '')",
        "billing_base_url": "coalesce(billing_base_url, '')",
        "billing_mode": "coalesce(billing_mode, '')",
        "api_call_count": "coalesce(api_call_count, 0)",
        **totals,
        "estimated_cost_usd": "coalesce(estimated_cost_usd, 0)",
        "actual_cost_usd": "coalesce(actual_cost_usd, 0)",
        "cost_status": "cost_status",
        "cost_source": "cost_source",
        "first_seen": "started_at",
        "last_seen": "coalesce(ended_at, started_at)",
    }
    main_loop = " AND task = ''" if "task" in db.columns("session_model_usage") else ""
    db.run(f"""
        INSERT INTO session_model_usage ({", ".join(values)})
        SELECT {", ".join(values.values())} FROM sessions
        WHERE {" + ".join(totals.values())} > 0
        AND NOT EXISTS (
            SELECT 1 FROM session_model_usage WHERE session_id = sessions.id{main_loop}
        )
    """)


def revert(db: Schema) -> None:
    db.drop_table("session_model_usage")


def upgrade() -> None:
    db = Schema.of(op)
    schema(db)
    fill(db)


def downgrade() -> None:
    revert(Schema.of(op))
