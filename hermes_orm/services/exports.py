"""Exporting sessions with their transcripts, within the limits of the configuration."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial

from hermes_orm.database import Database, Transaction
from hermes_orm.repositories.portability.exports import (
    BEFORE_FIRST,
    ExportRepository,
    Listed,
    portions,
)
from hermes_orm.repositories.portability.rows import (
    ActiveExport,
    ExportedLineage,
    ExportedSession,
)
from hermes_orm.services.resume import export_limit


async def export_session(database: Database, session_id: str) -> ExportedSession | None:
    """Return the session as `get_session` does, with `messages`, the live ones of `get_messages`.

    None for an unknown session. Raises SessionExportTooLargeError for more messages than
    `sessions.max_export_messages`. What is read is one snapshot.
    """
    limit = await export_limit()
    await database.settle()
    return await database.read(lambda tx: ExportRepository(tx).export_session(session_id, limit))


async def export_session_lineage(database: Database, session_id: str) -> ExportedLineage | None:
    """Return the tip of the compressed conversation that holds the session, exported as a whole.

    `segments` are the exports of its sessions, root first, `lineage_session_ids` their ids;
    `messages` and `message_count` are those of all. Branches and delegates are no part of it. The
    limit of `export_session` is one per session. None for an unknown session.
    """
    limit = await export_limit()
    await database.settle()
    return await database.read(
        lambda tx: ExportRepository(tx).export_session_lineage(session_id, limit)
    )


async def export_all(database: Database, source: str | None = None) -> list[ActiveExport]:
    """Return all sessions, or those of a source, as `export_session` does, with `last_active`.

    At most 100,000, the one that was active last first, as of one moment. A session beyond the
    limit raises SessionExportTooLargeError. All is held in memory: for a large store there is
    `iter_export`.
    """
    limit = await export_limit()
    await database.settle()
    return await database.read(lambda tx: ExportRepository(tx).export_all(source, limit))


async def iter_export(
    database: Database, source: str | None = None, max_messages: int | None = None
) -> AsyncIterator[ActiveExport]:
    """Yield the sessions that `export_all` returns, without a limit to their number.

    In the order of their start, so that parents come before their children. About 1,000 messages
    are read and held at a time; each session is as of one moment, and the store can be used
    meanwhile. Raises SessionExportTooLargeError for a session of more than `max_messages`; None
    stands for `sessions.max_export_messages`, 0 for no limit, and a negative number is a
    ValueError.
    """
    limit = await export_limit(max_messages)
    await database.settle()
    last = BEFORE_FIRST
    while listed := await database.read(partial(_list_after, last, source), scope="statement"):
        last = listed[-1]
        for portion in portions((session.messages, session.id) for session in listed):
            for session in await database.read(partial(_export, portion, limit)):
                yield session


def _list_after(last: Listed, source: str | None, tx: Transaction) -> list[Listed]:
    return ExportRepository(tx).list_after(last, source)


def _export(ids: list[str], limit: int, tx: Transaction) -> list[ActiveExport]:
    return ExportRepository(tx).export_sessions(ids, limit)
