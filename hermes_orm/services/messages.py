"""Message operations that check their arguments first, or send several transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeVar

from hermes_orm import clock
from hermes_orm.database import TRANSCRIPT_PATIENCE, Database
from hermes_orm.dialects.prepared import Params
from hermes_orm.dialects.transcript import TurnLease
from hermes_orm.errors import UnknownSessionError
from hermes_orm.repositories.messages.messages import (
    MessageRepository,
    claimed_lease,
    counted,
    session_key,
)
from hermes_orm.repositories.messages.rewriting import Dropping, RewritingRepository
from hermes_orm.repositories.messages.rows import encode_rows
from hermes_orm.repositories.messages.transcripts import Page, TranscriptRepository
from hermes_orm.rows import MessageRow
from hermes_orm.session_text import lookup_key

T = TypeVar("T")

BREATHE_AFTER = 0.005
"""Seconds of encoding after which other tasks get their turn."""


async def append_messages_batch(
    database: Database,
    session_id: str,
    messages: Sequence[Any],
    compression_lock_holder: str | None = None,
    turn_lease_holder: str | None = None,
    chunk_rows: int | None = None,
    turn_lease_ttl_seconds: float = 300.0,
) -> int:
    """Append message dicts in order, all or none; return how many.

    Conversation messages and rows of `get_messages` are both accepted; unknown keys are ignored,
    reasoning counts for assistants only. With `chunk_rows`, transactions of at most that many rows
    follow each other; a failure leaves the earlier ones. Raises what `append_message` raises,
    TypeError for an element that is no mapping, ValueError for `chunk_rows` below 1.
    """
    if not len(messages):
        return 0
    if chunk_rows is not None and chunk_rows <= 0:
        raise ValueError("chunk_rows must be positive; None appends all rows in one transaction")
    if chunk_rows is not None:
        database.stand_alone("append_messages_batch with chunk_rows")
    rows = encoded(database, messages)
    lease = claimed_lease(turn_lease_holder, turn_lease_ttl_seconds)
    key = session_key(session_id, lease)
    stored = 0
    while chunk := await taken(rows, chunk_rows):
        await _append(database, key, chunk, lease)
        stored += len(chunk)
    return stored


async def _append(
    database: Database, session_id: str, rows: Sequence[Params], lease: TurnLease | None
) -> None:
    total = counted(session_id, rows)
    await database.write(
        lambda tx: MessageRepository(tx).extend(rows, total, lease),
        patience=TRANSCRIPT_PATIENCE,
        scope="statement",
    )


async def replace_messages(
    database: Database,
    session_id: str,
    messages: Iterable[Any],
    active_only: bool = False,
    archive_dropped: bool = False,
) -> None:
    """Put message dicts in the place of a transcript, as `append_messages_batch` takes them.

    All rows of the session are deleted; with `active_only` only the live ones, and with
    `archive_dropped` they are kept as undone ones instead. Counters count the new rows. All or
    nothing: raises CompressionSessionClosedError for a session that goes on in another one,
    UnknownSessionError, TypeError for an element that is no mapping.
    """
    rows = await taken(encoded(database, messages))
    key = lookup_key(session_id)
    if key is None:
        if rows:
            raise UnknownSessionError(session_id)
        return
    dropping = Dropping.of(active_only=active_only, archive_dropped=archive_dropped)
    total = counted(key, rows)
    await database.write(lambda tx: RewritingRepository(tx).replace(rows, total, dropping))


def encoded(database: Database, messages: Iterable[Any]) -> Iterator[Params]:
    """Yield the rows of message dicts as they enter a transcript."""
    dialect = database.dialect
    rows = encode_rows(dialect.content_marker, messages, now=clock.now())
    return map(dialect.transcript.indexed, rows)


async def taken(items: Iterator[T], most: int | None = None) -> list[T]:
    """Take up to `most` items that are costly to make, without holding up other tasks."""
    loop = asyncio.get_running_loop()
    breathe_at = loop.time() + BREATHE_AFTER
    taken = []
    for item in islice(items, most):
        taken.append(item)
        if loop.time() > breathe_at:
            await asyncio.sleep(0)
            breathe_at = loop.time() + BREATHE_AFTER
    return taken


async def get_messages(
    database: Database,
    session_id: str,
    include_inactive: bool = False,
    limit: int | None = None,
    offset: int = 0,
    latest: bool = False,
    after_id: int | None = None,
) -> list[MessageRow]:
    """Return rows of a session in the order of their ids: live ones, or those of every state.

    `latest` counts `offset` and `limit` from the newest row; None or a negative limit is none.
    `after_id` leaves out rows up to that id, for paging; ValueError together with `latest` or an
    offset. Unknown sessions have no rows.
    """
    page = Page.of(
        include_inactive=include_inactive,
        limit=limit,
        offset=offset,
        latest=latest,
        after_id=after_id,
    )
    key = lookup_key(session_id)
    if key is None:
        return []
    return await database.read(
        lambda tx: TranscriptRepository(tx).get_messages(key, page), scope="statement"
    )
