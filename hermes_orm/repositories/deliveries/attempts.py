"""When a reply may be sent again, and when it is given up."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Final

PENDING: Final = "pending"
ATTEMPTING: Final = "attempting"
FAILED: Final = "failed"
DELIVERED: Final = "delivered"
ABANDONED: Final = "abandoned"

MAX_ATTEMPTS: Final = 3
STALE_SECONDS: Final = 86_400.0
BACK_OFF: Final = (30.0, 120.0)
"""Seconds before each retry of a process that goes on; the last attempt is left to a restart."""
DEFAULT_FLOOD_SECONDS: Final = 60.0
DEFAULT_PROFILE: Final = "default"
MARKER: Final = "(This reply may have reached you before: its delivery was interrupted.)\n\n"

_FLOOD: Final = re.compile(
    r"flood_control(?::\s*(?P<stated>[0-9.]+))?"
    r"|flood control exceeded(?:.*?retry in (?P<asked>[0-9.]+))?",
    re.I | re.S,
)
_WHOLE_CHAT: Final = re.compile(
    r"chat[ _]not[ _]found|channel[ _]not[ _]found|unknown channel|user[ _]not[ _]found"
    r"|bot was (?:blocked|kicked)|user is deactivated|peer[ _]id[ _]invalid|is_archived"
    r"|not[ _](?:a member|in[ _]channel)|(?:group|chat|channel) (?:was|is) (?:deleted|deactivated)",
    re.I,
)


@dataclass(frozen=True, slots=True)
class Obligation:
    """A reply, as the ledger has it."""

    obligation_id: str
    fence: int
    session_key: str
    platform: str
    chat_id: str
    thread_id: str | None
    content: str
    state: str
    attempts: int
    created_at: float
    updated_at: float
    last_error: str | None
    profile: str

    def is_lost(self, now: float) -> bool:
        """Whether nobody is going to send it any more."""
        is_stale = now - self.created_at > STALE_SECONDS
        return is_stale or self.attempts >= MAX_ATTEMPTS or self._is_refused_by_chat

    def refused_until(self) -> float | None:
        """Return the end of the wait that its platform demands; None when it demands none."""
        wait = flood_seconds(self.last_error) if self.state == FAILED else None
        return None if wait is None else self.updated_at + wait

    def not_before(self, now: float) -> float | None:
        """Return when the process that has failed to send it may try again; None for never."""
        if self.is_lost(now) or self.attempts >= len(BACK_OFF):
            return None
        refused = self.refused_until()
        return self.updated_at + BACK_OFF[self.attempts] if refused is None else refused

    @property
    def is_untouched(self) -> bool:
        """Whether certainly nobody has begun to send it."""
        return self.state == PENDING and self.attempts == 0

    @property
    def _is_refused_by_chat(self) -> bool:
        error = self.last_error if self.state == FAILED else None
        return bool(error and _WHOLE_CHAT.search(error))


def flood_seconds(error: str | None) -> float | None:
    """Return how long a platform that was asked too often wants to be left alone."""
    found = _FLOOD.search(error or "")
    if not found:
        return None
    try:
        seconds = float(found["stated"] or found["asked"] or DEFAULT_FLOOD_SECONDS)
    except ValueError:
        return DEFAULT_FLOOD_SECONDS
    return seconds if math.isfinite(seconds) else DEFAULT_FLOOD_SECONDS
