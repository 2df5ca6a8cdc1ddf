"""What gateway operations have in common: their rows, and conditions on peers and profiles."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, cast

from sqlalchemy import ColumnElement, SQLColumnExpression, bindparam, func, or_

from hermes_orm.gateway_rows import GatewaySessionRow
from hermes_orm.models import Session
from hermes_orm.models.base import TEXT
from hermes_orm.repositories.lineage.lineage import SessionAlias, last_active
from hermes_orm.repositories.sessions.keys import session_key_profile
from hermes_orm.repositories.sessions.rows import SESSION_KEYS, session_columns, with_times

GATEWAY_KEYS: Final = tuple(GatewaySessionRow.__annotations__)
_FURTHER: Final = GATEWAY_KEYS[len(SESSION_KEYS) :]


def gateway_columns(session: SessionAlias = Session) -> list[ColumnElement[Any]]:
    """Return the columns of a gateway row, in the order of GATEWAY_KEYS.

    The statement outer-joins `SystemPrompt` on the session's hash.
    """
    return [*session_columns(session), *(getattr(session, key) for key in _FURTHER)]


def gateway_row(row: Sequence[Any]) -> GatewaySessionRow:
    """Return the dict for a row of `gateway_columns`; what follows in the row is left out."""
    return cast(GatewaySessionRow, with_times(dict(zip(GATEWAY_KEYS, row, strict=False))))


def activity(session: SessionAlias) -> ColumnElement[float]:
    """Return the time of the session's last sign of life."""
    return func.coalesce(last_active(session.id), session.started_at)


def is_keyed(session: SessionAlias) -> ColumnElement[bool]:
    """Whether the session belongs to a peer; an empty key is none."""
    return session.session_key > ""


def is_blank(column: SQLColumnExpression[Any]) -> ColumnElement[bool]:
    """Whether a text is NULL or empty, which is the same in peers."""
    return or_(column.is_(None), column == "")


def has_reason(session: SessionAlias, reasons: Iterable[str]) -> ColumnElement[bool]:
    """Whether the session ended with one of the reasons; NULL without a reason."""
    return or_(*(session.end_reason == reason for reason in sorted(reasons)))


def fence_profile(owner: str | None, session_key: str | None = None) -> str | None:
    """Return the profile whose sessions a look-up may find; None: those of all.

    It is the owner of the store or, where several profiles share it, the one that the key names.
    """
    return owner if owner is not None else session_key_profile(session_key)


def is_of_profile(session: SessionAlias) -> ColumnElement[bool]:
    """Whether a session is in the fence of `:profile`; without a label it is in every one."""
    profile = bindparam("profile", type_=TEXT)
    return or_(profile.is_(None), is_blank(session.profile_name), session.profile_name == profile)
