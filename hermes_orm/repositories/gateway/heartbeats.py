"""Signs of life of the processes that serve the store."""

from __future__ import annotations

from typing import Any, Final, cast

from sqlalchemy import ClauseElement, ColumnElement, Double, bindparam, delete, or_, select

from hermes_orm import clock
from hermes_orm.arguments import finite_number, real_number, stored_number
from hermes_orm.dialects import Prepared
from hermes_orm.dialects.expressions import bound_texts, epoch_now, has_key_of, text_list, upsert
from hermes_orm.gateway_rows import BackendHeartbeat
from hermes_orm.models import GatewayHeartbeat
from hermes_orm.repositories.base import Repository
from hermes_orm.session_text import lookup_key, session_text, stored_key

KEYS: Final = tuple(BackendHeartbeat.__annotations__)
_AGE: Final[ColumnElement[float]] = bindparam("max_age", type_=Double())
_NOW: Final = epoch_now("now")

# A clock that jumped must not protect a row for ever: what is as far ahead is stale, too.
IS_STALE: Final = or_(
    GatewayHeartbeat.last_heartbeat < _NOW - _AGE,
    GatewayHeartbeat.last_heartbeat > _NOW + _AGE,
)
"""Whether a backend gave no sign for `:max_age` seconds before `:now`."""


def _register(*, is_now: bool) -> ClauseElement:
    values: dict[str, Any] = {key: bindparam(key) for key in KEYS}
    if is_now:
        values["last_heartbeat"] = _NOW
    return upsert(GatewayHeartbeat, values, update=KEYS[1:])


REGISTER = Prepared(lambda: _register(is_now=False))
REGISTER_NOW = Prepared(lambda: _register(is_now=True))
CLEAR = Prepared(delete(GatewayHeartbeat).where(GatewayHeartbeat.backend_id == bindparam("id")))
LOCK_STALE = Prepared(
    select(GatewayHeartbeat.backend_id)
    .where(IS_STALE)
    .order_by(GatewayHeartbeat.backend_id)
    .with_for_update(skip_locked=True)
)
DELETE_STALE = Prepared(
    lambda: (
        delete(GatewayHeartbeat)
        .where(has_key_of(GatewayHeartbeat.backend_id, bound_texts("ids")), IS_STALE)
        .returning(GatewayHeartbeat.backend_id)
    )
)
LIST = Prepared(
    select(*(getattr(GatewayHeartbeat, key) for key in KEYS)).order_by(
        GatewayHeartbeat.last_heartbeat.desc(), GatewayHeartbeat.backend_id
    )
)


class HeartbeatRepository(Repository):
    """Rows of `gateway_heartbeats`."""

    def register_backend_heartbeat(
        self,
        *,
        backend_id: str,
        pid: int,
        started_at: float,
        last_heartbeat: float | None = None,
        profile: str = "",
        host: str = "",
    ) -> None:
        """Record that a serving process is alive, now or at `last_heartbeat`.

        `backend_id` is that of one life of a process: it includes something random. Nothing
        happens for an empty one. Lost when others keep the database busy for half a second.
        ValueError for a time that is not finite.
        """
        if not backend_id:
            return
        row: dict[str, Any] = {
            "backend_id": stored_key(backend_id, "backend id"),
            "pid": stored_number(pid, "pid"),
            "started_at": finite_number(started_at, "started_at"),
            "profile": session_text(profile) or "",
            "host": session_text(host) or "",
            "now": clock.now(),
        }
        if last_heartbeat is None:
            self.tx.run(REGISTER_NOW, row)
        else:
            del row["now"]
            row["last_heartbeat"] = finite_number(last_heartbeat, "last_heartbeat")
            self.tx.run(REGISTER, row)

    def clear_backend_heartbeat(self, backend_id: str) -> bool:
        """Forget a serving process that ends; False when it is not known."""
        return self.tx.run(CLEAR, {"id": lookup_key(backend_id)}) > 0

    def prune_stale_heartbeats(self, *, max_age_seconds: float) -> list[str]:
        """Forget backends without a sign for that long, or one as far ahead; return their ids.

        None for an age of 0 or less.
        """
        if not max_age_seconds > 0:
            return []
        age = {"max_age": real_number(max_age_seconds, "max_age_seconds"), "now": clock.now()}
        stale = self.tx.all(LOCK_STALE, age)
        if not stale:
            return []
        given = {**age, "ids": text_list(row[0] for row in stale)}
        return sorted(row[0] for row in self.tx.all(DELETE_STALE, given))

    def list_backend_heartbeats(self) -> list[BackendHeartbeat]:
        """Return the serving processes, the one last heard of first."""
        rows = self.tx.all(LIST)
        return [cast(BackendHeartbeat, dict(zip(KEYS, row, strict=True))) for row in rows]
