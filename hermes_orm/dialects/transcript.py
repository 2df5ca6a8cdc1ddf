"""What the statements that append to a transcript have in common on both databases."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    ScalarSelect,
    Update,
    bindparam,
    func,
    or_,
    update,
)

from hermes_orm.dialects.expressions import unindexed
from hermes_orm.models import Message, Session

_LEFT_TO_THE_DATABASE = {"id", "active", "compacted"}
_COMPUTED_LATER = {
    "display_identity",
    "display_order",
    "absorbed_message_uids",
    "tool_call_uids",
    "tool_call_uid",
}

WRITTEN = tuple(
    column
    for column in Message.__table__.columns
    if column.name not in _LEFT_TO_THE_DATABASE | _COMPUTED_LATER
)
"""The columns that an append supplies; the new row is live."""

COPIED = tuple(
    column
    for column in Message.__table__.columns
    if column.name
    not in _LEFT_TO_THE_DATABASE | {"session_id", "display_identity", "display_order"}
)
"""The columns that a copy of a row has in common with it; the copy is live."""

MINIMAL_TTL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class TurnLease:
    """The turn lease that a writer claims to hold; an expired one is renewed."""

    key: ScalarSelect[str]
    """The conversation of session `:session_id`."""
    holder: str
    ttl_seconds: float


def tail_of_source() -> tuple[ColumnElement[bool], ...]:
    """Return what the live messages of `:source_id` after `:after_id`, up to `:last_id`, meet."""
    after_id, last_id = (bindparam(name, type_=BigInteger) for name in ("after_id", "last_id"))
    return (
        Message.session_id == bindparam("source_id", type_=Message.session_id.type),
        unindexed(Message.active) == 1,
        Message.id > after_id,
        Message.id <= last_id,
    )


class Overtaken(Exception):
    """What refused a unit was gone when its reason was asked for: the unit can run again."""

    sqlstate = "40001"


def is_open_for_appends() -> ColumnElement[bool]:
    """Whether a session takes messages: it was not ended by compression."""
    return or_(Session.ended_at.is_(None), Session.end_reason.is_distinct_from("compression"))


def count_added() -> Update:
    """Add `:added_rows` and `:added_calls` to the counters of `:session_id` if it is open."""
    counters = {
        "message_count": (Session.message_count, "added_rows"),
        "tool_call_count": (Session.tool_call_count, "added_calls"),
    }
    return (
        update(Session)
        .where(Session.id == bindparam("session_id"), is_open_for_appends())
        .values(
            {
                name: func.coalesce(column, 0) + bindparam(added, type_=BigInteger)
                for name, (column, added) in counters.items()
            }
        )
    )
