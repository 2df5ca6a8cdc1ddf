"""Deleting sessions: in one transaction, then their files, and no late usage brings them back."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Unpack

from hermes_orm.database import Database, Work
from hermes_orm.repositories.retention.deletion import DeletionRepository
from hermes_orm.repositories.retention.filters import (
    PruneFilters,
    empty_filter,
    ghost_filter,
    prune_filter,
    unused_filter,
)
from hermes_orm.repositories.sessions.filters import SessionFilter
from hermes_orm.services.session_files import directory, remove_files
from hermes_orm.session_text import lookup_key

Directory = str | os.PathLike[str] | None


async def delete_session(
    database: Database,
    session_id: str,
    sessions_dir: Directory = None,
    expected_delete_ids: Iterable[str] | None = None,
) -> bool:
    """Delete the session and its delegates, whatever their state; False when there is no such id.

    All that is theirs goes: messages, usage, locks, leases, unused prompts, and their files in
    `sessions_dir`. Other children become roots. With `expected_delete_ids`, what
    `get_session_delete_targets` said, nothing is deleted and False comes back if it is not that.
    """
    folder = directory(database, sessions_dir)
    expected: set[object] | None = None
    if expected_delete_ids is not None:
        expected = set(_several(expected_delete_ids, "expected_delete_ids"))
    deleted = await _deleted(
        database,
        folder,
        lambda tx: DeletionRepository(tx).delete_with_delegates({session_id}, expected=expected),
    )
    return lookup_key(session_id) in deleted


async def delete_sessions(
    database: Database, session_ids: Iterable[str], sessions_dir: Directory = None
) -> int:
    """Delete sessions and their delegates; return how many of the named ones there were.

    What is no text, or empty, is ignored. All are deleted in one transaction, as `delete_session`
    deletes one. Raises TypeError for a single text in place of several.
    """
    folder = directory(database, sessions_dir)
    named = {key for key in _several(session_ids, "session_ids") if isinstance(key, str) and key}
    deleted = await _deleted(
        database, folder, lambda tx: DeletionRepository(tx).delete_with_delegates(named)
    )
    return len(named & deleted)


async def delete_session_if_empty(
    database: Database, session_id: str, sessions_dir: Directory = None
) -> bool:
    """Delete the session if it has no title, no message in any state and no child."""
    folder = directory(database, sessions_dir)
    key = lookup_key(session_id)
    if key is None:
        return False
    return bool(await _deleted_matching(database, folder, unused_filter(key)))


async def delete_empty_sessions(
    database: Database, sessions_dir: Directory = None, *, include_pinned: bool = False
) -> int:
    """Delete the sessions that `count_empty_sessions` counts; return how many.

    Their children become roots, delegates too. Files in `sessions_dir` go with them.
    """
    folder = directory(database, sessions_dir)
    wanted = empty_filter(include_pinned=include_pinned)
    return len(await _deleted_matching(database, folder, wanted))


async def prune_empty_ghost_sessions(
    database: Database, sessions_dir: Directory = None, *, include_pinned: bool = False
) -> int:
    """Delete what opening and closing the terminal interface left; return how many sessions.

    They are of source `tui`, untitled, ended, without any message, and started over 24 hours ago.
    """
    folder = directory(database, sessions_dir)
    wanted = ghost_filter(include_pinned=include_pinned)
    return len(await _deleted_matching(database, folder, wanted))


async def prune_sessions(
    database: Database,
    older_than_days: float | None = 90,
    source: str | None = None,
    sessions_dir: Directory = None,
    **filters: Unpack[PruneFilters],
) -> int:
    """Delete the ended sessions that `list_prune_candidates` lists; return how many.

    Their children become roots, delegates too. `older_than_days` is about the latest message, or
    the start; it is ignored when `last_active_before` or `started_before` is given. Pinned sessions
    stay, unless `include_pinned=True`. Without any filter, and None days, all others go. Raises
    TypeError for an unknown filter or a value of the wrong type, ValueError for a number that is
    negative or not finite; nothing is deleted then.
    """
    folder = directory(database, sessions_dir)
    wanted = prune_filter("ended", older_than_days, source, filters)
    return len(await _deleted_matching(database, folder, wanted))


async def _deleted_matching(
    database: Database, folder: Path | None, wanted: SessionFilter
) -> set[str]:
    return await _deleted(
        database, folder, lambda tx: DeletionRepository(tx).delete_matching(wanted)
    )


async def _deleted(database: Database, folder: Path | None, work: Work[set[str]]) -> set[str]:
    await database.settle()
    deleted = await database.write(work)
    database.tombstones.bury(deleted)
    await remove_files(database, folder, deleted)
    return deleted


def _several(ids: Iterable[str], name: str) -> Iterable[object]:
    if isinstance(ids, str | bytes):
        raise TypeError(f"{name} must be a list of ids; put a single one into a list")
    return ids
