"""Columns of a session as operations return them, in the order of the keys."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final, cast

from sqlalchemy import ColumnElement, func

from hermes_orm.models import Session, SystemPrompt
from hermes_orm.repositories.keyed import Keyed
from hermes_orm.rows import CompactSessionRow, SessionRow

COMPACT_KEYS: Final = tuple(CompactSessionRow.__annotations__)
SESSION_KEYS: Final = tuple(SessionRow.__annotations__)
"""The keys of `get_session`: constants, since the table has more columns."""

_keyed: Final = Keyed(SESSION_KEYS)

_TIMES: Final = (
    "started_at",
    "ended_at",
    "last_activity_at",
    "last_read_at",
    "last_active",
    "compression_failure_cooldown_until",
)
_TIME_TYPES: Final = frozenset({float, type(None)})

logger = logging.getLogger(__name__)


def compact_columns(session: type[Session] = Session) -> list[ColumnElement[Any]]:
    """Return the columns of a row without its prompt, in the order of COMPACT_KEYS."""
    return [getattr(session, key) for key in COMPACT_KEYS]


def session_columns(
    session: type[Session] = Session, prompt: type[SystemPrompt] = SystemPrompt
) -> list[ColumnElement[Any]]:
    """Return the columns of a full row, in the order of SESSION_KEYS.

    The statement outer-joins `prompt` on the session's hash; old files hold inline prompts.
    """
    text = func.coalesce(prompt.prompt, session.system_prompt).label("system_prompt")
    return [text if key == "system_prompt" else getattr(session, key) for key in SESSION_KEYS]


def session_row(row: Sequence[Any] | None) -> SessionRow | None:
    """Return the dict for a row of `session_columns`; None for none."""
    if row is None:
        return None
    return cast(SessionRow, with_times(_keyed(row)))


def with_times(session: dict[str, Any]) -> dict[str, Any]:
    """Return the row itself, each time in it a float or None.

    SQLite stores any text as a time; callers, who calculate with times, get None and a warning.
    """
    if _TIME_TYPES.issuperset(map(type, map(session.get, _TIMES))):
        return session
    for key in _TIMES:
        if type(session.get(key)) not in _TIME_TYPES:
            logger.warning("sessions: %s of row %r is no time and is ignored", key, session["id"])
            session[key] = None
    return session
