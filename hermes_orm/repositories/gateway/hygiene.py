"""How many cleanups of a peer's sessions failed in a row."""

from __future__ import annotations

from sqlalchemy import bindparam, delete, literal

from hermes_orm.dialects import Prepared
from hermes_orm.dialects.expressions import insert_into
from hermes_orm.models import GatewayHygieneState
from hermes_orm.repositories.base import Repository
from hermes_orm.session_text import lookup_key, stored_key

_FIRST = {"session_key": bindparam("session_key"), "failure_streak": literal(1)}

INCREMENT = Prepared(
    insert_into(GatewayHygieneState, _FIRST)
    .on_conflict_do_update(
        index_elements=["session_key"],
        set_={"failure_streak": GatewayHygieneState.failure_streak + 1},
    )
    .returning(GatewayHygieneState.failure_streak)
)
RESET = Prepared(
    delete(GatewayHygieneState).where(GatewayHygieneState.session_key == bindparam("session_key"))
)


class HygieneRepository(Repository):
    """Rows of `gateway_hygiene_state`."""

    def increment_hygiene_failure_streak(self, session_key: str) -> int:
        """Count a failure and return how many there are now; 1, and nothing stored, for no key."""
        if not session_key:
            return 1
        streak: int = self.tx.scalar(
            INCREMENT, {"session_key": stored_key(session_key, "session key")}
        )
        return streak

    def reset_hygiene_failure_streak(self, session_key: str) -> None:
        """Forget the failures of a peer."""
        self.tx.run(RESET, {"session_key": lookup_key(session_key)})
