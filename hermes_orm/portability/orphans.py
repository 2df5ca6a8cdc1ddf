"""Rows whose referred rows were lost: kept, detached or removed, so that references hold."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import ForeignKey, and_, delete, exists, func, insert, not_, select, update

from hermes_orm.dialects.base import Transaction
from hermes_orm.models import Message, Session
from hermes_orm.portability.tables import carried_tables
from hermes_orm.session_text import MAX_TITLE_LENGTH

RECOVERED: Final = "recovered"


def mend_references(tx: Transaction) -> dict[str, int]:
    """Give lost sessions of messages a placeholder, clear or remove other rows that refer to none.

    Return how many rows were made, cleared and removed.
    """
    report = {"placeholder sessions": _make_placeholders(tx)}
    for table in carried_tables():
        for reference in sorted(table.foreign_keys, key=lambda each: str(each.parent)):
            changed = _mend(tx, reference)
            what = "cleared" if reference.parent.nullable else "removed"
            report[f"{reference.parent} {what}"] = changed
    return {name: count for name, count in report.items() if count}


def _make_placeholders(tx: Transaction) -> int:
    connection = tx.connection
    live = func.sum(Message.active)
    lost = (
        select(Message.session_id, func.min(Message.timestamp), live)
        .where(~exists(select(Session.id).where(Session.id == Message.session_id)))
        .group_by(Message.session_id)
        .order_by(Message.session_id)
    )
    former = select(Session.title).where(Session.title.startswith(f"[{RECOVERED} "))
    titles = set(connection.scalars(former))
    rows: list[dict[str, Any]] = []
    number = 0
    for session_id, started_at, live_count in connection.execute(lost):
        title = None
        while title is None or title in titles:
            number += 1
            title = f"[{RECOVERED} {number}] {session_id}"[:MAX_TITLE_LENGTH]
        rows.append(
            {
                "id": session_id,
                "source": RECOVERED,
                "created_source": RECOVERED,
                "title": title,
                "started_at": started_at,
                "message_count": live_count or 0,
            }
        )
    if rows:
        connection.execute(insert(Session), rows)
    return len(rows)


def _mend(tx: Transaction, reference: ForeignKey) -> int:
    column, target = reference.parent, reference.column.table.alias()
    is_met = exists(select(1).where(target.c[reference.column.name] == column))
    dangling = and_(column.is_not(None), not_(is_met))
    table = column.table
    if not tx.dialect.on_demand.columns(tx, table):
        return 0
    change: Any = delete(table).where(dangling)
    if column.nullable:
        change = update(table).where(dangling).values({column.name: None})
    return int(tx.connection.execute(change).rowcount)
