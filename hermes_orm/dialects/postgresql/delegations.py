"""Background delegations of several hosts: who works on one renews a lease on it."""

from __future__ import annotations

from typing import Final, cast

from sqlalchemy import Column, Double, MetaData, Table, null, or_

from hermes_orm.dialects.delegations import (
    INSTANCE,
    LEASE_SECONDS,
    OWNER_PID,
    OWNER_STARTED_AT,
    Delegations,
)
from hermes_orm.dialects.expressions import epoch_now
from hermes_orm.models import AsyncDelegation
from hermes_orm.models.base import TEXT

_TABLE: Final = cast(Table, AsyncDelegation.__table__).to_metadata(MetaData())
_INSTANCE: Final = Column("owner_instance_id", TEXT)
_LEASE: Final = Column("lease_expires_at", Double)
_TABLE.append_column(_INSTANCE)
_TABLE.append_column(_LEASE)
_NOW: Final = epoch_now("now")
_RENEWED: Final = {"lease_expires_at": _NOW + LEASE_SECONDS}

DELEGATIONS: Final = Delegations(
    table=_TABLE,
    owned={
        "owner_pid": OWNER_PID,
        "owner_started_at": OWNER_STARTED_AT,
        "owner_instance_id": INSTANCE,
        **_RENEWED,
    },
    renewed=_RENEWED,
    ended={"lease_expires_at": null()},
    is_own=_INSTANCE == INSTANCE,
    is_abandoned=or_(_LEASE.is_(None), _LEASE < _NOW),
)
