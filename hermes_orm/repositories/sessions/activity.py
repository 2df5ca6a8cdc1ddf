"""What a session is doing, and when it last did something."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Any

from sqlalchemy import and_, bindparam, or_, select, update

from hermes_orm import clock
from hermes_orm.arguments import real_number
from hermes_orm.codec import plain_text
from hermes_orm.dialects import Prepared
from hermes_orm.models import Session
from hermes_orm.repositories.base import Repository
from hermes_orm.repositories.sessions.rows import with_times
from hermes_orm.rows import SessionActivity
from hermes_orm.session_text import lookup_key, session_text

MAX_DESCRIPTION_LENGTH = 120


class ActivityProvenance(StrEnum):
    """Who says what a session is doing."""

    UNKNOWN = "unknown"
    AGENT_COMPRESSION = "agent.compression"
    AGENT_COMPRESSION_TIMEOUT = "agent.compression_timeout"
    AGENT_COMPRESSION_COOLDOWN = "agent.compression_cooldown"


TOUCH = Prepared(
    update(Session)
    .where(
        Session.id == bindparam("session_id"),
        or_(Session.last_activity_at.is_(None), Session.last_activity_at < bindparam("moment")),
    )
    .values(
        last_activity_at=bindparam("moment"),
        last_activity_description=bindparam("description"),
        last_activity_provenance=bindparam("provenance"),
    )
)
CLEAR_LABELS = Prepared(
    update(Session)
    .where(
        Session.id == bindparam("session_id"),
        or_(
            Session.last_activity_description != "",
            and_(
                Session.last_activity_provenance != "",
                Session.last_activity_provenance != ActivityProvenance.UNKNOWN.value,
            ),
        ),
    )
    .values(last_activity_description="", last_activity_provenance=ActivityProvenance.UNKNOWN.value)
)
GET_ACTIVITY = Prepared(
    select(
        Session.last_activity_at,
        Session.last_activity_description,
        Session.last_activity_provenance,
    ).where(Session.id == bindparam("session_id"))
)


def _described(description: object) -> str:
    text = (session_text(description) or "").strip()
    if len(text) <= MAX_DESCRIPTION_LENGTH:
        return text
    return text[: MAX_DESCRIPTION_LENGTH - 1] + "…"


def _provenance(value: object) -> str:
    """Return a known provenance; the host application has an enum of its own with equal values."""
    try:
        return ActivityProvenance(plain_text(getattr(value, "value", value)).strip()).value
    except ValueError:
        return ActivityProvenance.UNKNOWN.value


def _moment(ts: Any) -> float:
    moment = clock.now() if ts is None else real_number(ts, "ts")
    if not math.isfinite(moment):
        raise ValueError(f"ts must be a finite Unix time or None for now, not {moment}")
    return moment


def _key(session_id: str) -> str | None:
    return lookup_key(session_id or None)  # "" can be an id, but here it means none


class ActivityRepository(Repository):
    """The activity stamp and labels of sessions."""

    def touch_session_activity(
        self,
        session_id: str,
        ts: float | None = None,
        *,
        description: str | None = None,
        provenance: str | None = None,
    ) -> None:
        """Record a sign of life, now or at `ts`, with what goes on; it never moves back in time.

        A stamp that is not newer changes nothing, labels included. The description is cut to 120
        characters; a provenance that is not known becomes `unknown`. Raises ValueError for a `ts`
        that is no finite number.
        """
        touch = {
            "session_id": _key(session_id),
            "moment": _moment(ts),
            "description": _described(description),
            "provenance": _provenance(provenance),
        }
        self.tx.run(TOUCH, touch)

    def clear_session_activity_labels(self, session_id: str) -> None:
        """Forget what goes on in the session; the time stays."""
        self.tx.run(CLEAR_LABELS, {"session_id": _key(session_id)})

    def get_session_activity(self, session_id: str) -> SessionActivity | None:
        """Return when the session last gave a sign of life, and what went on; None when unknown.

        `seconds_since_activity` is rounded to a tenth, and negative for a stamp in the future.
        """
        found = self.tx.first(GET_ACTIVITY, {"session_id": _key(session_id)})
        if found is None:
            return None
        at = with_times({"id": session_id, "last_activity_at": found[0]})["last_activity_at"]
        description, provenance = _described(found[1]), _provenance(found[2])
        return {
            "last_activity_at": at,
            "last_activity_ts": at,
            "last_activity_description": description,
            "last_activity_desc": description,
            "description": description,
            "last_activity_provenance": provenance,
            "provenance": provenance,
            "seconds_since_activity": None if at is None else round(clock.now() - at, 1),
        }
