"""What a session remembers of compressions that failed, or that brought too little."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import bindparam, select, update

from hermes_orm import clock
from hermes_orm.arguments import mapping, real_number, stored_number
from hermes_orm.dialects import Prepared
from hermes_orm.errors import shown
from hermes_orm.models import Session
from hermes_orm.repositories.base import Repository
from hermes_orm.rows import CompressionCooldown, CooldownRow
from hermes_orm.session_text import lookup_key, session_text

_THIS: Final = Session.id == bindparam("session_id")
_UNTIL: Final = Session.compression_failure_cooldown_until
_ERROR: Final = Session.compression_failure_error

GET_COOLDOWN = Prepared(select(_UNTIL, _ERROR).where(_THIS))
SET_COOLDOWN = Prepared(
    update(Session)
    .where(_THIS)
    .values({_UNTIL.key: bindparam("until"), _ERROR.key: bindparam("error")})
    .returning(_UNTIL, _ERROR)
)
GET_STREAK = Prepared(select(Session.compression_fallback_streak).where(_THIS))
SET_STREAK = Prepared(
    update(Session).where(_THIS).values(compression_fallback_streak=bindparam("count"))
)
GET_INEFFECTIVE = Prepared(select(Session.compression_ineffective_count).where(_THIS))
SET_INEFFECTIVE = Prepared(
    update(Session).where(_THIS).values(compression_ineffective_count=bindparam("count"))
)


class CompressionFailureRepository(Repository):
    """Rows of `sessions`: the guards against compressing in vain. Unknown sessions have none."""

    def record_compression_failure_cooldown(
        self, session_id: str, cooldown_until: float, error: str | None = None
    ) -> None:
        """Store until when the session is not to be compressed again, and why."""
        until = real_number(cooldown_until, "cooldown_until")
        self._store_cooldown(session_id, until, error)

    def clear_compression_failure_cooldown(self, session_id: str) -> None:
        """Let the session be compressed again."""
        self._store_cooldown(session_id, None, None)

    def get_compression_failure_cooldown(self, session_id: str) -> CompressionCooldown | None:
        """Return the cooldown with its remaining seconds; None when it is over or unset."""
        row = self.get_compression_failure_cooldown_row(session_id)
        until = row["cooldown_until"]
        if until is None or (remaining := until - clock.now()) <= 0:
            return None
        return {
            "cooldown_until": until,
            "remaining_seconds": remaining,
            "error": row["error"],
        }

    def get_compression_failure_cooldown_row(self, session_id: str) -> CooldownRow:
        """Return what is stored, also when it is over; `restore_...` takes it back."""
        row = self.tx.first(GET_COOLDOWN, _this(session_id))
        until, error = row or (None, None)
        return {
            "session_exists": row is not None,
            "cooldown_until": None if until is None else float(until),
            "error": error,
        }

    def restore_compression_failure_cooldown_row(
        self, session_id: str, snapshot: Mapping[str, Any]
    ) -> None:
        """Store exactly what `get_compression_failure_cooldown_row` has returned earlier.

        Raises RuntimeError, with nothing changed, when the session has come or gone since then,
        and when the database stores anything else.
        """
        if not session_id:
            return
        if not mapping(snapshot, "snapshot").get("session_exists"):
            if self.tx.first(GET_COOLDOWN, _this(session_id)) is not None:
                raise RuntimeError(f"session now exists: {shown(session_id)}; take a new snapshot")
            return
        until, error = snapshot.get("cooldown_until"), snapshot.get("error")
        if until is not None:
            until = real_number(until, "cooldown_until")
        stored = self._store_cooldown(session_id, until, error)
        if stored is None:
            raise RuntimeError(f"session missing: {shown(session_id)}; there is nothing to restore")
        if tuple(stored) != (until, error):
            raise RuntimeError(
                f"verification failed: the cooldown of {shown(session_id)} is another"
            )

    def get_compression_fallback_streak(self, session_id: str) -> int:
        """Return how many compressions in a row have fallen back."""
        return self._count(GET_STREAK, session_id)

    def set_compression_fallback_streak(self, session_id: str, streak: int) -> None:
        """Store how many compressions in a row have fallen back; negative numbers as 0."""
        number = stored_number(streak, "streak", bits=32)
        self.tx.run(SET_STREAK, {**_this(session_id), "count": max(0, number)})

    def get_compression_ineffective_count(self, session_id: str) -> int:
        """Return how many compressions have brought too little."""
        return self._count(GET_INEFFECTIVE, session_id)

    def set_compression_ineffective_count(self, session_id: str, count: int) -> None:
        """Store how many compressions have brought too little; negative numbers as 0."""
        number = stored_number(count, "count", bits=32)
        self.tx.run(SET_INEFFECTIVE, {**_this(session_id), "count": max(0, number)})

    def _store_cooldown(self, session_id: str, until: float | None, error: str | None) -> Any:
        row = {**_this(session_id), "until": until, "error": session_text(error)}
        return self.tx.first(SET_COOLDOWN, row)

    def _count(self, statement: Prepared, session_id: str) -> int:
        return max(0, self.tx.scalar(statement, _this(session_id)) or 0)


def _this(session_id: str) -> dict[str, str | None]:
    return {"session_id": lookup_key(session_id or None)}
