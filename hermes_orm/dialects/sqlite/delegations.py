"""Background delegations of one host: a process is known by its id and the time it started."""

from __future__ import annotations

from typing import Final, cast

from sqlalchemy import Table, or_

from hermes_orm.dialects.delegations import OWNER_PID, OWNER_STARTED_AT, Delegations, owner_key_of
from hermes_orm.dialects.expressions import bound_texts
from hermes_orm.models import AsyncDelegation

_PID: Final = AsyncDelegation.owner_pid
_STARTED_AT: Final = AsyncDelegation.owner_started_at
_KEY: Final = owner_key_of(_PID, _STARTED_AT)

DELEGATIONS: Final = Delegations(
    table=cast(Table, AsyncDelegation.__table__),
    owned={"owner_pid": OWNER_PID, "owner_started_at": OWNER_STARTED_AT},
    renewed={},
    ended={},
    is_own=(_PID == OWNER_PID) & _STARTED_AT.is_not_distinct_from(OWNER_STARTED_AT),
    is_abandoned=or_(_PID.is_(None), _KEY.in_(bound_texts("gone"))),
)
