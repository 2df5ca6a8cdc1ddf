"""Deleting, pruning, archiving; the size of a store."""

from __future__ import annotations

from hermes_orm.database import Database
from hermes_orm.facade import reads, runs
from hermes_orm.repositories.retention.deletion import DeletionRepository
from hermes_orm.repositories.retention.pruning import PruningRepository
from hermes_orm.services import deletion, retention, upkeep


class RetentionOperations:
    """How a store gets rid of sessions."""

    database: Database

    get_session_delete_targets = reads(DeletionRepository.get_session_delete_targets)
    delete_session = runs(deletion.delete_session, modifies=True)
    delete_sessions = runs(deletion.delete_sessions, modifies=True)
    delete_session_if_empty = runs(deletion.delete_session_if_empty, modifies=True)
    delete_empty_sessions = runs(deletion.delete_empty_sessions, modifies=True)
    prune_empty_ghost_sessions = runs(deletion.prune_empty_ghost_sessions, modifies=True)
    list_prune_candidates = reads(PruningRepository.list_prune_candidates, scope="statement")
    count_open_prune_matches = reads(PruningRepository.count_open_prune_matches, scope="statement")
    prune_sessions = runs(deletion.prune_sessions, modifies=True)
    archive_sessions = runs(retention.archive_sessions, modifies=True)
    archive_stale_sessions = runs(retention.archive_stale_sessions, modifies=True)
    maybe_auto_prune_and_vacuum = runs(retention.maybe_auto_prune_and_vacuum, joins=False)
    maybe_auto_archive = runs(retention.maybe_auto_archive, joins=False)
    vacuum = runs(upkeep.vacuum, modifies=True, joins=False)
    logical_size_bytes = runs(upkeep.logical_size_bytes)
