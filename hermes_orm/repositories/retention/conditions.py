"""Conditions on sessions that decide what is pruned or archived."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Double,
    Numeric,
    SQLColumnExpression,
    and_,
    bindparam,
    cast,
    func,
    or_,
    select,
)
from sqlalchemy.orm import aliased
from sqlalchemy.types import TypeEngine

from hermes_orm.dialects.expressions import ascii_lower
from hermes_orm.models import Message, Session, SessionRecency
from hermes_orm.models.base import TEXT
from hermes_orm.repositories.compression.guards import guarded_sessions
from hermes_orm.repositories.gateway.rows import is_keyed
from hermes_orm.repositories.sessions.end_reasons import COMPRESSION, STARTUP_ORPHAN_REAP
from hermes_orm.repositories.sessions.filters import conditions as session_conditions
from hermes_orm.repositories.sessions.filters import contains

Value = Callable[[], SQLColumnExpression[Any]]


def conditions(names: frozenset[str]) -> list[ColumnElement[bool]]:
    """Return the conditions of a filter on the rows of `sessions`."""
    own = [condition() for name, condition in _CONDITIONS.items() if name in names]
    return [*session_conditions(names), *own]


def last_active() -> ColumnElement[float]:
    """Return the time of the session's latest message, whatever its state, or else its start."""
    latest = select(func.max(Message.timestamp)).where(Message.session_id == Session.id)
    return func.coalesce(latest.scalar_subquery(), Session.started_at)


def _cost() -> ColumnElement[float]:
    return func.coalesce(Session.actual_cost_usd, Session.estimated_cost_usd, 0.0)


def _tokens() -> ColumnElement[Decimal]:
    # Two counters of 64 bits make more than 64.
    first, second = (
        cast(func.coalesce(column, 0), Numeric())
        for column in (Session.input_tokens, Session.output_tokens)
    )
    return first + second


def _is_messageless() -> ColumnElement[bool]:
    # With LIMIT, because PostgreSQL would read all messages for an EXISTS here and hash them.
    a_message = select(Message.id).where(Message.session_id == Session.id).limit(1)
    return a_message.scalar_subquery().is_(None)


def _is_unused() -> ColumnElement[bool]:
    counters = ("message_count", "tool_call_count", "api_call_count", "input_tokens")
    used = (getattr(Session, name) for name in (*counters, "output_tokens"))
    return and_(
        Session.last_activity_at.is_(None), *(func.coalesce(count, 0) == 0 for count in used)
    )


def _was_last_active_before() -> ColumnElement[bool]:
    """What a sweep has ended counts from then on, as if that were a sign of life."""
    name = "last_active_before"
    bound: ColumnElement[float] = bindparam(name, type_=Double())
    was_swept = Session.end_reason == STARTUP_ORPHAN_REAP
    return and_(
        _below(name, last_active, Double()),
        or_(Session.end_reason.is_(None), ~was_swept, Session.ended_at < bound),
    )


def _is_childless() -> ColumnElement[bool]:
    child = aliased(Session)
    return ~select(child.id).where(child.parent_session_id == Session.id).exists()


def _is_idle() -> ColumnElement[bool]:
    is_old = SessionRecency.last_active < bindparam("idle_since")
    return Session.id.in_(select(SessionRecency.session_id).where(is_old))


def _below(name: str, value: Value, type_: TypeEngine[Any]) -> ColumnElement[bool]:
    return value() < bindparam(name, type_=type_)


def _at_most(name: str, value: Value, type_: TypeEngine[Any]) -> ColumnElement[bool]:
    return value() <= bindparam(name, type_=type_)


def _at_least(name: str, value: Value, type_: TypeEngine[Any]) -> ColumnElement[bool]:
    return value() >= bindparam(name, type_=type_)


def _equal(name: str, column: SQLColumnExpression[Any]) -> ColumnElement[bool]:
    return column == bindparam(name, type_=TEXT)


_MOMENTS: Final[dict[str, Value]] = {
    "last_active": last_active,
    "started": lambda: Session.started_at,
}
_AMOUNTS: Final[dict[str, tuple[Value, TypeEngine[Any]]]] = {
    "messages": (lambda: func.coalesce(Session.message_count, 0), BigInteger()),
    "tokens": (_tokens, BigInteger()),
    "tool_calls": (lambda: func.coalesce(Session.tool_call_count, 0), BigInteger()),
    "cost": (_cost, Double()),
}

# The conditions of `sessions.filters` have other names, or mean the same.
_CONDITIONS: Final[dict[str, Callable[[], ColumnElement[bool]]]] = {
    "this": lambda: Session.id == bindparam("session_id"),
    "ended": lambda: Session.ended_at.is_not(None),
    "open": lambda: Session.ended_at.is_(None),
    "uncompressed": lambda: Session.end_reason.is_distinct_from(COMPRESSION),
    "untitled": lambda: Session.title.is_(None),
    "messageless": _is_messageless,
    "childless": _is_childless,
    "keyed": lambda: is_keyed(Session),
    "unused": _is_unused,
    "unguarded": lambda: Session.id.not_in(guarded_sessions()),
    "idle_since": _is_idle,
    "provider": lambda: _equal("provider", ascii_lower(Session.billing_provider)),
    "title_like": lambda: contains(Session.title, "title_like"),
    "model_like": lambda: contains(Session.model, "model_like"),
    "branch_like": lambda: contains(Session.git_branch, "branch_like"),
    **{
        name: partial(_equal, name, getattr(Session, name))
        for name in ("end_reason", "user_id", "chat_id", "chat_type")
    },
    **{f"{n}_before": partial(_below, f"{n}_before", v, Double()) for n, v in _MOMENTS.items()},
    "last_active_before": _was_last_active_before,
    **{f"{n}_after": partial(_at_least, f"{n}_after", v, Double()) for n, v in _MOMENTS.items()},
    **{f"min_{n}": partial(_at_least, f"min_{n}", *v) for n, v in _AMOUNTS.items()},
    **{f"max_{n}": partial(_at_most, f"max_{n}", *v) for n, v in _AMOUNTS.items()},
}
