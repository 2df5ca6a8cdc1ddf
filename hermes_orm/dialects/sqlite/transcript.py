"""How message rows enter a transcript on SQLite: at most three statements in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from sqlalchemy import (
    ScalarSelect,
    bindparam,
    case,
    column,
    func,
    insert,
    literal_column,
    select,
    table,
    update,
)

from hermes_orm import clock
from hermes_orm.dialects.base import Transaction, Transcript
from hermes_orm.dialects.prepared import Params, Prepared
from hermes_orm.dialects.transcript import (
    COPIED,
    MINIMAL_TTL_SECONDS,
    WRITTEN,
    TurnLease,
    count_added,
    tail_of_source,
)
from hermes_orm.dialects.uids import give_uids
from hermes_orm.models import Message, SessionTurnLease

COUNT_ADDED = Prepared(count_added())
_IDS = table("sqlite_sequence", column("name"), column("seq"))
_NEXT_ID = (
    select(func.coalesce(func.max(_IDS.c.seq), 0) + 1)
    .where(_IDS.c.name == Message.__tablename__)
    .scalar_subquery()
)
# Upstream's trigger would set the order of a row that comes without one to its id, by an update of
# the row that was just inserted.
INSERT = insert(Message).values(
    {column.name: bindparam(column.name) for column in WRITTEN} | {"display_order": _NEXT_ID}
)
INSERT_ONE = Prepared(INSERT.returning(Message.id))
INSERT_MANY = Prepared(INSERT)
COPY_TAIL = Prepared(
    insert(Message).from_select(
        ["session_id", *(column.name for column in COPIED)],
        select(bindparam("session_id"), *COPIED).where(*tail_of_source()).order_by(Message.id),
    )
)
GIVE_UIDS_TO_TAIL = Prepared(give_uids(*tail_of_source()))


@lru_cache
def hold_lease(key: ScalarSelect[str]) -> Prepared:
    """Return the statement that finds the holder's lease and renews it when it has expired."""
    expires_at = SessionTurnLease.expires_at
    renewed = case((expires_at <= bindparam("now"), bindparam("renewed")), else_=expires_at)
    return Prepared(
        update(SessionTurnLease)
        .where(
            SessionTurnLease.conversation_id == key,
            SessionTurnLease.holder == bindparam("holder"),
        )
        .values(expires_at=renewed)
        .returning(literal_column("1"))
    )


class SQLiteTranscript(Transcript):
    """Appends on SQLite. Triggers keep recency and the search indexes."""

    def append(self, tx: Transaction, row: Params, lease: TurnLease | None) -> int | None:
        """Insert one live row and count it."""
        if not _may_append(tx, row, lease):
            return None
        row_id: int = tx.scalar(INSERT_ONE, row)
        return row_id

    def extend(
        self, tx: Transaction, rows: Sequence[Params], total: Params, lease: TurnLease | None
    ) -> bool:
        """Insert rows in order and count them once."""
        if not _may_append(tx, total, lease):
            return False
        tx.run_many(INSERT_MANY, [{**row, **total} for row in rows])
        return True

    def fill(self, tx: Transaction, rows: Sequence[Params]) -> None:
        """Insert rows of new sessions in order."""
        tx.run_many(INSERT_MANY, rows)

    def copy_tail(self, tx: Transaction, tail: Params) -> int:
        """Copy live rows of a session in order; a row and its copy have the same id."""
        tx.run(GIVE_UIDS_TO_TAIL, tail)
        return tx.run(COPY_TAIL, tail)


def _may_append(tx: Transaction, counts: Params, lease: TurnLease | None) -> bool:
    """Count what is added; False when the lease is lost or the session is closed or unknown."""
    if lease is not None:
        now = clock.now()
        claim = {
            "session_id": counts["session_id"],
            "holder": lease.holder,
            "now": now,
            "renewed": now + max(MINIMAL_TTL_SECONDS, lease.ttl_seconds),
        }
        if tx.first(hold_lease(lease.key), claim) is None:
            return False
    return tx.run(COUNT_ADDED, counts) == 1
