"""Store each system prompt once; know what was read, who set a title, and who holds a turn.

Prompts move from their sessions to `system_prompts`, under the SHA-256 of their UTF-8; one that has
none stays where it is. Going back copies them into their sessions again.
"""

import hashlib

from alembic import op

from hermes_orm.dialects.revising import DOUBLE, INTEGER, TEXT, Schema, optional, required

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None

PROMPT_HASH = optional("system_prompt_hash", TEXT, references="system_prompts.hash")
SESSIONS = (
    optional("last_read_at", DOUBLE),
    optional("title_source", TEXT),
    required("hidden", INTEGER, "0"),
)
LEASES = (
    required("conversation_id", TEXT),
    required("holder", TEXT),
    required("acquired_at", DOUBLE),
    required("expires_at", DOUBLE),
)


def schema(db: Schema) -> None:
    db.create_table(
        "system_prompts", (required("hash", TEXT), required("prompt", TEXT)), key=("hash",)
    )
    db.add_columns("sessions", PROMPT_HASH, *SESSIONS)
    db.require_reference("sessions", PROMPT_HASH)
    db.create_index("idx_sessions_system_prompt_hash", "sessions", ["system_prompt_hash"])
    db.create_table("session_turn_leases", LEASES, key=("conversation_id",))
    db.create_index("idx_session_turn_leases_expires", "session_turn_leases", ["expires_at"])


def fill(db: Schema) -> None:
    if db.offline:
        db.omit("moving the prompts of sessions to system_prompts")
        return
    prompts = f"""
        SELECT id, {db.frozen.OCTETS.format(text="system_prompt")} FROM sessions
        WHERE system_prompt IS NOT NULL AND id > :after ORDER BY id
    """
    for batch in db.batches(prompts):
        move_prompts(
            db,
            [
                {"id": session_id, "hash": hashlib.sha256(octets).hexdigest()}
                for session_id, octets in batch
                if is_utf8(octets)
            ],
        )


def revert(db: Schema) -> None:
    db.run("""
        UPDATE sessions SET system_prompt = (
            SELECT prompt FROM system_prompts WHERE hash = sessions.system_prompt_hash
        ) WHERE system_prompt_hash IS NOT NULL AND system_prompt IS NULL
    """)
    db.drop_indexes("idx_sessions_system_prompt_hash")
    db.drop_columns("sessions", PROMPT_HASH, derived=True)
    db.drop_columns("sessions", *SESSIONS)
    db.drop_table("system_prompts", disposable=True)
    db.drop_table("session_turn_leases", disposable=True)


def move_prompts(db: Schema, moves: list[dict[str, str]]) -> None:
    first = {move["hash"]: move for move in moves}
    db.run_many(
        "INSERT INTO system_prompts (hash, prompt) "
        "SELECT :hash, system_prompt FROM sessions WHERE id = :id ON CONFLICT DO NOTHING",
        list(first.values()),
    )
    db.run_many(
        "UPDATE sessions SET system_prompt_hash = :hash, system_prompt = NULL WHERE id = :id",
        moves,
    )


def is_utf8(octets: bytes) -> bool:
    try:
        octets.decode()
    except UnicodeDecodeError:
        return False
    return True


def upgrade() -> None:
    db = Schema.of(op)
    schema(db)
    fill(db)


def downgrade() -> None:
    revert(Schema.of(op))
