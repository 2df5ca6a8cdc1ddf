"""Background delegations: the columns of their table, and who works on one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, SQLColumnExpression, Table, bindparam, cast, func

from hermes_orm.models.base import TEXT

OWNER_PID = bindparam("owner_pid", type_=BigInteger)
OWNER_STARTED_AT = bindparam("owner_started_at", type_=BigInteger)
INSTANCE = bindparam("instance", type_=TEXT)
LEASE_SECONDS = 180.0
"""How long an owner that says nothing is taken to be alive."""


@dataclass(frozen=True, eq=False)
class Delegations:
    """How a database tells that somebody works on a delegation, or does no longer.

    Parameters are `owner_pid`, `owner_started_at`, `instance` and `now` and, for what is
    abandoned, `gone`: owners (`owner_key`) that have ended.
    """

    table: Table
    owned: Mapping[str, ColumnElement[Any]]
    """Values by which this process owns a row."""
    renewed: Mapping[str, ColumnElement[Any]]
    """Values by which it goes on to own it; none where it needs to say nothing."""
    ended: Mapping[str, ColumnElement[Any]]
    """Values by which a row is nobody's work any more."""
    is_own: ColumnElement[bool]
    is_abandoned: ColumnElement[bool]


def owner_key_of(
    process_id: SQLColumnExpression[Any], started_at: SQLColumnExpression[Any]
) -> ColumnElement[str]:
    """Return the columns of an owner as one text; NULL where there is no owner."""
    return cast(process_id, TEXT) + ":" + func.coalesce(cast(started_at, TEXT), "")


def owner_key(process_id: int, started_at: int | None) -> str:
    """Return an owner as that text."""
    return f"{process_id}:{'' if started_at is None else started_at}"
