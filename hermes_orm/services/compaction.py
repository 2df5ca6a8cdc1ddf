"""Compression of a conversation: messages are encoded before the session is locked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hermes_orm.database import Database
from hermes_orm.repositories.compaction import CompactionRepository
from hermes_orm.repositories.messages import counted
from hermes_orm.repositories.transcripts import id_bound
from hermes_orm.services.messages import encoded, taken
from hermes_orm.session_text import lookup_key


async def archive_and_compact(
    database: Database,
    session_id: str,
    compacted_messages: Iterable[Any],
    model_config_patch: Mapping[str, Any] | None = None,
    watermark: int | None = None,
    lock_holder: str | None = None,
) -> int:
    """Archive the live messages and put a summary in their place; return how many are live now.

    Live messages after `watermark`, which `get_active_message_watermark` has returned before the
    history was read, follow the summary as copies. The patch replaces top-level keys of
    `model_config`; None removes one. With `lock_holder`, raises SessionCompressionInProgressError
    unless that holder has the session's compression lock. Raises CompressionSessionClosedError for
    a session that goes on in another one, RuntimeError for an unknown one. All or nothing.
    """
    after_id = None if watermark is None else id_bound(watermark)
    rows = await taken(encoded(database, compacted_messages))
    key = lookup_key(session_id)
    if key is None:
        raise RuntimeError(f"Session not found: {session_id!r}; create it first")
    total = counted(key, rows)
    return await database.write(
        lambda tx: CompactionRepository(tx).archive_and_compact(
            key,
            rows,
            total,
            patch=model_config_patch,
            watermark=after_id,
            lock_holder=lock_holder,
        )
    )
