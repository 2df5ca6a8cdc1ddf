"""Recency of sessions: one definition for triggers, filling and checking on both databases."""

from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    SQLColumnExpression,
    case,
    delete,
    func,
    insert,
    literal_column,
    select,
)

from hermes_orm.codec import EARLIEST_TIME, LATEST_TIME
from hermes_orm.models.messages import Message
from hermes_orm.models.own import SessionRecency
from hermes_orm.models.sessions import Session


def recency_definition() -> Select[str, float]:
    """Return what `hermes_session_recency` must hold: a row (session_id, last_active) per session.

    The later of the recorded activity and the latest message; the start when both are absent.
    What is no time (only other programs store such values) counts as absent.
    """
    activity = time_or_null(Session.last_activity_at)
    latest = (
        select(func.max(Message.timestamp))
        .where(Message.session_id == Session.id, is_time(Message.timestamp))
        .correlate(Session)
        .scalar_subquery()
    )
    last_active = case(
        (activity > latest, activity), else_=func.coalesce(latest, recency_without_messages())
    )
    return select(Session.id.label("session_id"), last_active.label("last_active"))


def recency_without_messages() -> ColumnElement[float]:
    """Return the recency of a session that has no message."""
    times = time_or_null(Session.last_activity_at), time_or_null(Session.started_at)
    return func.coalesce(*times, literal_column("0.0"))


def is_time(value: SQLColumnExpression[Any]) -> ColumnElement[bool]:
    """Whether a stored value is a time that a store would keep: neither text nor infinite."""
    return value.between(literal_column(str(EARLIEST_TIME)), literal_column(str(LATEST_TIME)))


def time_or_null(value: SQLColumnExpression[Any]) -> ColumnElement[Any]:
    """Return a stored time, NULL for a value that is none."""
    return case((is_time(value), value))


def fill_recency(connection: Connection) -> None:
    """Compute the recency of every session anew."""
    connection.execute(delete(SessionRecency))
    connection.execute(
        insert(SessionRecency).from_select(["session_id", "last_active"], recency_definition())
    )
