"""Why sessions end: the reasons that have a meaning. Every other text is free."""

from typing import Final

COMPRESSION: Final = "compression"
"""The conversation goes on in a child session."""

BRANCHED: Final = "branched"
"""Children that started at or after this end are branches."""

RESET_END_REASONS: Final = frozenset(
    {"session_reset", "session_switch", "idle", "daily", "suspended", "resume_pending_expired"}
)
"""A fresh conversation replaced this one: a child with the same session key is a reset."""

BOUNDARY_END_REASONS: Final = RESET_END_REASONS | {"new_session"}
"""Ends of a conversation for the healing of compressed chains."""

STARTUP_ORPHAN_REAP: Final = "startup_orphan_reap"
"""A sweep found the session without its runtime."""

RECOVERABLE_END_REASONS: Final = (
    "agent_close",
    "ws_orphan_reap",
    "superseded_by_resume",
    STARTUP_ORPHAN_REAP,
)
"""Only a runtime went away: routing may resume the session."""

AUTOMATIC_END_REASONS: Final = frozenset(RECOVERABLE_END_REASONS) | {
    "tui_shutdown",
    "ws_disconnect",
    "idle_timeout",
    "lru_evict",
}
"""Written without a user's wish: a writer that proves liveness may clear them."""

SUPERSEDED_BY_REPAIR: Final = "superseded_by_repair"
ORPHANED_COMPRESSION: Final = "orphaned_compression"


def is_automatic_end_reason(reason: object) -> bool:
    """Return whether a session ended because some runtime went away, not by anybody's wish."""
    return isinstance(reason, str) and reason in AUTOMATIC_END_REASONS
