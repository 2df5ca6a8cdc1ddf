"""Keep the name and the origin of a chat's peer with its session.

Older programs kept them in a file: `-x sessions_json=PATH` takes over what that file says about
sessions that lack it. No file is searched for.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from alembic import op
from alembic.util import CommandError

from hermes_orm.dialects.revising import INTEGER, TEXT, Schema, optional

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

COLUMNS = (
    optional("display_name", TEXT),
    optional("origin_json", TEXT),
    optional("expiry_finalized", INTEGER, "0"),
)


def schema(db: Schema) -> None:
    db.add_columns("sessions", *COLUMNS)


def fill(db: Schema) -> None:
    path = db.option("sessions_json")
    if path is None:
        return
    if db.offline:
        db.omit("what the file of sessions says")
        return
    for key, entry in entries(Path(path)):
        origin = entry.get("origin") if isinstance(entry.get("origin"), dict) else {}
        fill_peer(
            db,
            entry["session_id"],
            session_key=text(entry.get("session_key") or key),
            chat_id=text(origin.get("chat_id")),
            thread_id=text(origin.get("thread_id")),
            chat_type=text(entry.get("chat_type")),
            display_name=text(entry.get("display_name")),
            origin_json=json.dumps(origin) if origin else None,
        )
        if entry.get("expiry_finalized") or entry.get("memory_flushed"):
            db.run(
                "UPDATE sessions SET expiry_finalized = 1 WHERE id = :id", id=entry["session_id"]
            )


def revert(db: Schema) -> None:
    db.drop_columns("sessions", *COLUMNS)


def fill_peer(db: Schema, session_id: str, **values: str | None) -> None:
    """Write the values that are known into the columns that are NULL."""
    for name, value in values.items():
        if value is not None:
            db.run(
                f"UPDATE sessions SET {name} = :value WHERE id = :id AND {name} IS NULL",
                value=value,
                id=session_id,
            )


def entries(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Return the entries of the file that name a session."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise CommandError(f"sessions_json: {path} can't be read as JSON: {error}") from error
    if not isinstance(content, dict):
        raise CommandError(f"sessions_json: {path} holds no JSON object")
    for key, entry in content.items():
        named = isinstance(entry, dict) and isinstance(entry.get("session_id"), str)
        if named and not key.startswith("_"):
            yield key, entry


def text(value: object) -> str | None:
    return None if value is None else str(value)


def upgrade() -> None:
    db = Schema.of(op)
    schema(db)
    fill(db)


def downgrade() -> None:
    revert(Schema.of(op))
