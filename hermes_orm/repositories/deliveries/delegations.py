"""Background delegations: who works on one, and how its result reaches whoever asked."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from hermes_orm import clock
from hermes_orm.codec import decode_json
from hermes_orm.delivery_rows import DurableDelegation
from hermes_orm.dialects import Prepared
from hermes_orm.dialects.expressions import text_list
from hermes_orm.dialects.prepared import Params
from hermes_orm.repositories.base import Repository
from hermes_orm.repositories.deliveries import delegation_statements as statements
from hermes_orm.rows import JsonObject
from hermes_orm.session_text import lookup_key, session_text, stored_key

EVENT_TYPE: Final = "async_delegation"
TASK_KEYS: Final = ("goal", "goals", "context", "toolsets", "role", "model", "is_batch")
ABANDONED_ERROR: Final = (
    "The process that ran this task ended before it reported a result. What the task had done by "
    "then is done; check before running it again."
)


class DelegationRepository(Repository):
    """Rows of `async_delegations`. An owner is given as `Process.params()`."""

    def dispatch(self, owner: Params, given: Params) -> None:
        """Record a task as running, whatever was known of its id; forget old results."""
        now = {"now": clock.now()}
        self.tx.run(self._statements.dispatch, {**owner, **given, **now})
        for statement in (statements.FORGET, statements.LIMIT_SETTLED, statements.LIMIT_PENDING):
            self.tx.run(statement, now)

    def renew(self, owner: Params) -> None:
        """Extend the leases of what the owner works on; on SQLite it is known without."""
        if self.tx.dialect.delegations.renewed:
            self.tx.run(self._statements.renew, {**owner, "now": clock.now()})

    def complete(self, owner: Params, outcome: Params) -> bool:
        """Store the result of what the owner works on; False when it is no longer its work."""
        outcome = {**owner, **outcome, "now": clock.now()}
        return self.tx.first(self._statements.complete, outcome) is not None

    def owners(self) -> set[tuple[int, int | None]]:
        """Return the processes that work on something, by id and start time."""
        return {(row[0], row[1]) for row in self.tx.all(statements.OWNERS)}

    def recover(self, gone: Iterable[str]) -> int:
        """End what nobody works on any more as `unknown`; return how many that are."""
        now = clock.now()
        search = {"gone": text_list(gone), "now": now}
        found = [
            dict(zip(statements.TOLD, row, strict=True))
            for row in self.tx.all(self._statements.abandoned, search)
        ]
        self.tx.run_many(self._statements.lose, [_lost(row, now) for row in found])
        return len(found)

    def undelivered(self) -> list[tuple[str, Any]]:
        """Return id and event of every result that nobody has got, in the order of completion."""
        return [(row[0], decode_json(row[1])) for row in self.tx.all(statements.UNDELIVERED)]

    def delete_delegation_dispatch(self, delegation_id: str) -> None:
        """Forget a delegation whose task could not be started."""
        self.tx.run(statements.DELETE, {"delegation_id": lookup_key(delegation_id)})

    def get_durable_delegation(self, delegation_id: str) -> DurableDelegation | None:
        """Return what is known of a delegation; its result is None until there is one."""
        row = self.tx.first(statements.GET, {"delegation_id": lookup_key(delegation_id)})
        if row is None:
            return None
        return {
            "delegation_id": row[0],
            "origin_session": row[1],
            "state": row[2],
            "dispatched_at": row[3],
            "completed_at": row[4],
            "result": decode_json(row[5]),
            "delivery_state": row[6],
            "delivery_attempts": row[7],
            "origin_session_id": row[8],
        }

    def claim(self, delegation_id: str, claim_id: str) -> bool:
        """Take the right to deliver a result; True also where there is no row to protect."""
        claim = _claim(delegation_id, stored_key(claim_id, "claim id"))
        if self.tx.first(statements.CLAIM, claim) is not None:
            return True
        return self.tx.first(statements.KNOWN, claim) is None

    def held(self, transition: Prepared, delegation_id: str, claim_id: str | None) -> bool:
        """Run `RELEASE`, `DROP`, `COMPLETE` or `DELIVER`; False when nothing was changed."""
        return self.tx.first(transition, _claim(delegation_id, lookup_key(claim_id))) is not None

    @property
    def _statements(self) -> statements.Owning:
        return statements.owning(self.tx.dialect.delegations)


def task_json(task: Mapping[str, Any]) -> str:
    """Return what is stored of a task."""
    return encoded({key: task[key] for key in TASK_KEYS if key in task})


def encoded(value: object) -> str:
    """Return a value as JSON text; what JSON cannot hold, as its `str()`."""
    try:
        return json.dumps(value, default=str)
    except RecursionError:
        raise ValueError("a value is nested too deep to be JSON: flatten it") from None


def delegation_key(delegation_id: object) -> str:
    """Return the id of a delegation that is to be stored; raises ValueError for an empty one."""
    if not delegation_id:
        raise ValueError("a delegation needs a delegation_id; give it one")
    return stored_key(delegation_id, "delegation id")


def _claim(delegation_id: str, claim_id: str | None) -> Params:
    return {
        "delegation_id": lookup_key(delegation_id),
        "claim_id": session_text(claim_id),
        "now": clock.now(),
    }


def _lost(row: JsonObject, now: float) -> Params:
    """Return what is stored of an abandoned delegation: event and result, made up."""
    task = decode_json(row.pop("task_json"))
    outcome = {
        "status": statements.UNKNOWN,
        "summary": None,
        "error": ABANDONED_ERROR,
        "completed_at": now,
    }
    event = {
        "type": EVENT_TYPE,
        "session_key": row["origin_session"],
        **row,
        **(task if isinstance(task, dict) else {}),
        **outcome,
    }
    return {
        "delegation_id": row["delegation_id"],
        "event_json": encoded(event),
        "result_json": encoded(outcome),
        "now": now,
    }
