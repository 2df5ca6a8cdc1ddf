"""Ids of sessions that a store has deleted a short while ago."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice, takewhile
from typing import Final

from hermes_orm import clock

KEPT_SECONDS: Final = 3600.0
LIMIT: Final = 100_000


class Tombstones:
    """The deleted sessions that late usage must not bring back; each is forgotten after an hour.

    A unit of work may bury and lift: doing it again changes nothing. Those of a `transaction()`
    stand upon the store's, which learn of them at the commit.
    """

    def __init__(self, store: Tombstones | None = None) -> None:
        self._store = store
        self._buried: dict[str, float | None] = {}
        """When a session was deleted; None: it was created anew, whatever the store knows."""

    def bury(self, session_ids: Iterable[str]) -> None:
        """Remember deleted sessions, the latest 100,000 of them."""
        now = clock.now()
        for session_id in session_ids:
            self._buried.pop(session_id, None)
            self._buried[session_id] = now
        over = takewhile(
            lambda at: at is not None and now - at >= KEPT_SECONDS, self._buried.values()
        )
        surplus = max(sum(1 for _ in over), len(self._buried) - LIMIT)
        for session_id in list(islice(self._buried, surplus)):
            del self._buried[session_id]

    def lift(self, session_id: str) -> None:
        """Forget a session: it has been created anew."""
        if self._store is None:
            self._buried.pop(session_id, None)
        else:
            self._buried[session_id] = None

    def commit(self) -> None:
        """Let the store know what happened in a transaction."""
        assert self._store is not None, "of a transaction"
        for session_id, buried_at in self._buried.items():
            if buried_at is None:
                self._store.lift(session_id)
            else:
                self._store.bury([session_id])

    def __contains__(self, session_id: str) -> bool:
        if self._store is not None and session_id not in self._buried:
            return session_id in self._store
        buried_at = self._buried.get(session_id)
        if buried_at is None:
            return False
        if clock.now() - buried_at < KEPT_SECONDS:
            return True
        self.lift(session_id)
        return False
