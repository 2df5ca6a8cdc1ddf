"""Ids of sessions that a store has deleted a short while ago."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final

from hermes_orm import clock

KEPT_SECONDS: Final = 3600.0
LIMIT: Final = 100_000


class Tombstones:
    """The deleted sessions that late usage must not bring back; each is forgotten after an hour.

    A unit of work may bury and lift: doing it again changes nothing.
    """

    def __init__(self) -> None:
        self._buried: dict[str, float] = {}

    def bury(self, session_ids: Iterable[str]) -> None:
        """Remember deleted sessions, the latest 100,000 of them."""
        now = clock.now()
        for session_id in session_ids:
            self._buried.pop(session_id, None)
            self._buried[session_id] = now
        surplus = max(0, len(self._buried) - LIMIT)
        for session_id in list(islice(self._buried, surplus)):
            del self._buried[session_id]

    def lift(self, session_id: str) -> None:
        """Forget a session: it has been created anew."""
        self._buried.pop(session_id, None)

    def __contains__(self, session_id: str) -> bool:
        buried_at = self._buried.get(session_id)
        if buried_at is None:
            return False
        if clock.now() - buried_at < KEPT_SECONDS:
            return True
        self.lift(session_id)
        return False
