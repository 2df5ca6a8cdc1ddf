"""Recency of sessions: one definition for triggers, filling and checking on both databases."""

from sqlalchemy import Connection, Select, case, delete, func, insert, select

from hermes_orm.models.messages import Message
from hermes_orm.models.own import SessionRecency
from hermes_orm.models.sessions import Session


def recency_definition() -> Select[str, float]:
    """Return what `hermes_session_recency` must hold: a row (session_id, last_active) per session.

    The later of the recorded activity and the latest message; the start when both are absent.
    """
    activity = Session.last_activity_at
    latest = (
        select(func.max(Message.timestamp))
        .where(Message.session_id == Session.id)
        .correlate(Session)
        .scalar_subquery()
    )
    last_active = case(
        (activity > latest, activity), else_=func.coalesce(latest, activity, Session.started_at)
    )
    return select(Session.id.label("session_id"), last_active.label("last_active"))


def fill_recency(connection: Connection) -> None:
    """Compute the recency of every session anew."""
    connection.execute(delete(SessionRecency))
    connection.execute(
        insert(SessionRecency).from_select(["session_id", "last_active"], recency_definition())
    )
