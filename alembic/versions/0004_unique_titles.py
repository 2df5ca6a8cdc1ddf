"""Let a title name one session only.

Of several sessions with one title the oldest that a user named keeps it (where none is named by a
user, the newest of the best source); the others get the next free number: `Title #2`. No title is
lost. Going back drops the rule; the new titles stay.
"""

from alembic import op

from hermes_orm.dialects.revising import Schema

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

RANKS = {None: 2, "user": 2, "llm": 1}  # any other source ranks last


def schema(db: Schema) -> None:
    number_duplicates(db)
    db.create_index(
        "idx_sessions_title_unique", "sessions", ["title"], unique=True, where="title IS NOT NULL"
    )


def revert(db: Schema) -> None:
    db.drop_indexes("idx_sessions_title_unique")


def number_duplicates(db: Schema) -> None:
    """Rename all but one of the sessions that share a title; none do once the index exists."""
    if db.offline:
        db.omit("numbering the duplicates of titles, without which the next statement may fail")
        return
    duplicates = db.rows(
        "SELECT title FROM sessions WHERE title IS NOT NULL "
        "GROUP BY title HAVING count(*) > 1 ORDER BY title"
    )
    source = "title_source" if "title_source" in db.columns("sessions") else "NULL"
    for (title,) in duplicates:
        rows = db.rows(
            f"SELECT id, {source} FROM sessions WHERE title = :title "
            f"ORDER BY started_at, {db.frozen.INSERTION_ORDER}",
            title=title,
        )
        keeper = who_keeps([RANKS.get(row[1], 0) for row in rows])
        number = 2
        for session_id, _ in rows[:keeper] + rows[keeper + 1 :]:
            while is_taken(db, f"{title} #{number}"):
                number += 1
            db.run(
                "UPDATE sessions SET title = :title WHERE id = :id",
                title=f"{title} #{number}",
                id=session_id,
            )
            db.note("session %s shared its title and got number %d of it", session_id, number)


def who_keeps(ranks: list[int]) -> int:
    """Return which of the sessions, oldest first, keeps the title."""
    best = max(ranks)
    if best == 2:
        return ranks.index(best)
    return len(ranks) - 1 - ranks[::-1].index(best)


def is_taken(db: Schema, title: str) -> bool:
    return bool(db.rows("SELECT 1 FROM sessions WHERE title = :title LIMIT 1", title=title))


def upgrade() -> None:
    schema(Schema.of(op))


def downgrade() -> None:
    revert(Schema.of(op))
