"""Keep the gateway's routes in the database; tell whether a tool had an effect.

Routes of early builds, which had no scope, get the empty one; of two routes for one key the latest
stays.
"""

from alembic import op

from hermes_orm.dialects.revising import DOUBLE, TEXT, Schema, optional, required

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

ROUTES = (
    required("scope", TEXT, "''"),
    required("session_key", TEXT),
    required("entry_json", TEXT),
    required("updated_at", DOUBLE),
)
KEY = ("scope", "session_key")
EFFECT = optional("effect_disposition", TEXT)


def schema(db: Schema) -> None:
    if db.has_table("gateway_routing") and db.primary_key("gateway_routing") != KEY:
        db.add_columns("gateway_routing", ROUTES[0])
        db.replace_table(
            "gateway_routing",
            {
                "scope": "coalesce(scope, '')",
                "session_key": "session_key",
                "entry_json": "entry_json",
                "updated_at": "updated_at",
            },
            """(
                SELECT *, row_number() OVER (
                    PARTITION BY coalesce(scope, ''), session_key ORDER BY updated_at DESC
                ) AS place
                FROM gateway_routing
            ) AS routes WHERE place = 1""",
            lambda: create_routes(db),
        )
    else:
        create_routes(db)
    db.add_columns("messages", EFFECT)
    db.create_index("idx_messages_active_null", "messages", ["active"], where="active IS NULL")


def revert(db: Schema) -> None:
    db.drop_indexes("idx_messages_active_null")
    db.drop_columns("messages", EFFECT)
    db.drop_table("gateway_routing")


def create_routes(db: Schema) -> None:
    db.create_table("gateway_routing", ROUTES, key=KEY)


def upgrade() -> None:
    schema(Schema.of(op))


def downgrade() -> None:
    revert(Schema.of(op))
