"""Give every message an id that its copies keep; order listings by a stored time of last activity.

Messages that exist get ids of their own. Going back loses the ids, which can't be made again: it is
refused when there are any.
"""

from alembic import op

from hermes_orm.dialects.revising import DOUBLE, INTEGER, TEXT, Schema, optional, required

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None

MESSAGES = (
    optional("message_uid", TEXT),
    optional("absorbed_message_uids", TEXT),
    optional("tool_call_uids", TEXT),
    optional("tool_call_uid", TEXT),
)
SESSIONS = (
    optional("created_source", TEXT),
    required("compression_overload_streak", INTEGER, "0"),
    required("auto_archived", INTEGER, "0"),
)
RECENCY = (required("session_id", TEXT), required("last_active", DOUBLE))


def schema(db: Schema) -> None:
    db.add_columns("messages", *MESSAGES)
    db.create_index(
        "idx_messages_session_uid", "messages", ["session_id", "message_uid"], where="active = 1"
    )
    db.add_columns("sessions", *SESSIONS)
    is_new = db.create_table(
        "hermes_session_recency", RECENCY, key=("session_id",), sqlite_with_rowid=False
    )
    db.create_index(
        "idx_hermes_session_recency_order",
        "hermes_session_recency",
        ["last_active DESC", "session_id"],
    )
    if is_new:
        db.fill_recency()
    db.frozen.create_derived_0031(db.connection)


def fill(db: Schema) -> None:
    give_uids(db)
    describe(db)


def describe(db: Schema) -> None:
    db.run(
        "INSERT INTO state_meta (key, value) VALUES ('message_uid_backfill', '1') "
        "ON CONFLICT (key) DO UPDATE SET value = '1'"
    )
    identify(db)


def identify(db: Schema) -> None:
    db.run("DELETE FROM state_meta WHERE key = 'message_uid_backfill_id'")
    for key, value in {
        "store_instance_id": db.frozen.NEW_UUID,
        "store_created_at_utc": db.frozen.NOW,
    }.items():
        db.run(
            f"INSERT INTO state_meta (key, value) VALUES ('{key}', {value}) ON CONFLICT DO NOTHING"
        )


def revert(db: Schema) -> None:
    db.frozen.drop_derived_0031(db.connection)
    db.drop_table("hermes_session_recency", disposable=True)
    db.drop_indexes("idx_messages_session_uid")
    db.drop_columns("messages", *MESSAGES)
    db.drop_columns("sessions", *SESSIONS)
    db.run("DELETE FROM state_meta WHERE key = 'message_uid_backfill'")


def give_uids(db: Schema) -> None:
    db.run(f"UPDATE messages SET message_uid = {db.frozen.NEW_UID} WHERE message_uid IS NULL")


def upgrade() -> None:
    db = Schema.of(op)
    if db.is_hasty:
        schema(db)
        db.run("DELETE FROM state_meta WHERE key = 'message_uid_backfill'")
        identify(db)
        return
    if not db.offline:  # before there is an index, which costs less to make than to keep
        db.add_columns("messages", *MESSAGES)
        give_uids(db)
    schema(db)
    if db.offline or db.frozen.WRITERS_GO_ON:
        give_uids(db)
    describe(db)


def downgrade() -> None:
    revert(Schema.of(op))
