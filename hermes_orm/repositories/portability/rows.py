"""Shapes of exported sessions, and of what comes of an import."""

from typing import NotRequired, TypedDict

from hermes_orm.rows import MessageRow, SessionRow


class ExportedSession(SessionRow):
    """A row of `sessions` with the live messages of the session."""

    messages: list[MessageRow]


class ActiveExport(ExportedSession):
    """An exported session with the time of its last sign of life."""

    last_active: float


class ExportedLineage(ExportedSession):
    """The tip of a compressed conversation, with the messages of all its sessions.

    `segments` are the exports of these sessions, root first.
    """

    segments: list[ExportedSession]
    lineage_session_ids: list[str]


class RejectedSession(TypedDict):
    """Why an entry of an import was rejected; its id when it is known."""

    index: int
    error: str
    session_id: NotRequired[str]


class ImportResult(TypedDict):
    """What came of an import; the lists of ids when it is `ok`."""

    ok: bool
    imported: int
    skipped: int
    detached: int
    errors: list[RejectedSession]
    imported_ids: NotRequired[list[str]]
    skipped_ids: NotRequired[list[str]]
