"""Reading whole transcripts, within the limits of the configuration."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import hermes_orm
from hermes_orm.arguments import whole_number
from hermes_orm.database import Database
from hermes_orm.errors import SessionExportTooLargeError, SessionResumeTooLargeError
from hermes_orm.repositories.messages.resume import ResumeRepository, up_to
from hermes_orm.rows import ConversationMessage


async def get_resume_conversations(
    database: Database, session_id: str
) -> tuple[list[ConversationMessage], list[ConversationMessage]]:
    """Return the conversation that a model goes on with, and the one that a user sees.

    The first is that of the session, its alternation repaired; the second that of its ancestors,
    too, up to a branch. Both have `_row_id`. Raises SessionResumeTooLargeError for more messages
    than `sessions.max_resume_messages`. Unknown sessions have none.
    """
    limit = await hermes_orm.resolved_max_resume_messages()
    return await database.read(
        lambda tx: ResumeRepository(tx).get_resume_conversations(session_id, limit),
        scope="statement",
    )


async def assert_resume_safe(
    database: Database, session_id: str, max_messages: int | None = None
) -> int:
    """Return how many messages resuming the session would read.

    Raises SessionResumeTooLargeError for more than `max_messages`; None stands for
    `sessions.max_resume_messages`, 0 for no limit, and a negative number is a ValueError.
    """
    limit = await _limit(max_messages, hermes_orm.resolved_max_resume_messages)
    count = await database.read(
        lambda tx: ResumeRepository(tx).count_displayed(session_id, up_to(limit)),
        scope="statement",
    )
    if 0 < limit < count:
        raise SessionResumeTooLargeError(count, limit)
    return count


async def assert_export_safe(
    database: Database, session_id: str, max_messages: int | None = None
) -> int:
    """Return how many live messages the session itself has.

    Raises SessionExportTooLargeError for more than `max_messages`; None stands for
    `sessions.max_export_messages`, 0 for no limit, and a negative number is a ValueError.
    """
    limit = await export_limit(max_messages)
    count = await database.read(
        lambda tx: ResumeRepository(tx).count_own(session_id, up_to(limit)), scope="statement"
    )
    if 0 < limit < count:
        raise SessionExportTooLargeError(session_id, count, limit)
    return count


async def export_limit(max_messages: int | None = None) -> int:
    """Return how many messages of a session may be exported: as given, or as configured."""
    return await _limit(max_messages, hermes_orm.resolved_max_export_messages)


async def _limit(given: int | None, configured: Callable[[], Awaitable[int]]) -> int:
    limit = await configured() if given is None else whole_number(given, "max_messages")
    if limit < 0:
        raise ValueError("max_messages must be non-negative; 0 switches the limit off")
    return limit
