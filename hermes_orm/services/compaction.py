"""Compression of a conversation: messages are encoded before the session is locked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hermes_orm.database import Database
from hermes_orm.dialects.base import ALL_ROWS
from hermes_orm.errors import shown
from hermes_orm.repositories.compression.compaction import CompactionRepository
from hermes_orm.repositories.compression.publication import Publication, PublicationRepository
from hermes_orm.repositories.messages.messages import counted
from hermes_orm.repositories.messages.transcripts import id_bound
from hermes_orm.repositories.sessions.creation import NewSession
from hermes_orm.services.messages import encoded, taken
from hermes_orm.session_text import lookup_key, stored_key


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
        raise RuntimeError(f"Session not found: {shown(session_id)}; create it first")
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


async def publish_compression_child(
    database: Database,
    *,
    parent_session_id: str,
    child_session_id: str,
    source: str,
    messages: Sequence[Any],
    model: str | None = None,
    model_config: Mapping[str, Any] | str | None = None,
    system_prompt: str | None = None,
    cwd: str | None = None,
    profile_name: str | None = None,
    compression_lock_holder: str | None = None,
    require_compression_lease: bool = True,
    watermark: int | None = None,
    watermark_ceiling: int | None = None,
) -> None:
    """End a session by compression and create the session that carries it on, at once.

    The child has `messages`, and copies of the parent's live messages after `watermark`, up to
    `watermark_ceiling`. Place and peer are the parent's. Raises CompressionSessionBusyError unless
    `compression_lock_holder` has the parent's compression lock or none is required, an integrity
    error for the id of an existing session, RuntimeError for a parent that has ended or does not
    exist and without messages. Nothing is changed then.
    """
    if not messages:
        raise RuntimeError("messages of a compression child must not be empty; pass the summary")
    fields = {
        "model": model,
        "model_config": model_config,
        "system_prompt": system_prompt,
        "cwd": cwd,
        "profile_name": profile_name,
    }
    child = NewSession.of(child_session_id, source, fields)
    new = Publication(
        parent_id=stored_key(parent_session_id, "parent session id"),
        child=child,
        messages=await taken(encoded(database, messages)),
        after_id=None if watermark is None else id_bound(watermark),
        last_id=ALL_ROWS if watermark_ceiling is None else id_bound(watermark_ceiling),
    )
    await database.write(
        lambda tx: PublicationRepository(tx).publish(
            new, holder=compression_lock_holder, needs_lock=require_compression_lease
        )
    )
