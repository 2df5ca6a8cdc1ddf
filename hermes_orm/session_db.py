"""The public store: one line per operation; what each does stands where it is defined."""

from __future__ import annotations

import copy
import functools
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sqlalchemy.ext.asyncio import AsyncConnection

from hermes_orm.database import (
    ACTIVITY_PATIENCE,
    DEFAULT_PATIENCE,
    TRANSCRIPT_PATIENCE,
    Database,
)
from hermes_orm.dialects import make_dialect
from hermes_orm.facade import plans, reads, runs, streams, writes
from hermes_orm.gateway_operations import GatewayOperations
from hermes_orm.location import SqliteLocation, locate
from hermes_orm.repositories.compression.failures import CompressionFailureRepository
from hermes_orm.repositories.compression.leases import LeaseRepository
from hermes_orm.repositories.lineage.chains import ChainRepository
from hermes_orm.repositories.lineage.orphans import OrphanRepository
from hermes_orm.repositories.listing.listing import ListingRepository, session_unread
from hermes_orm.repositories.listing.openings import OpeningRepository
from hermes_orm.repositories.messages.conversations import ConversationRepository
from hermes_orm.repositories.messages.lookups import LookupRepository
from hermes_orm.repositories.messages.messages import MessagePlans
from hermes_orm.repositories.messages.ownership import OwnershipRepository
from hermes_orm.repositories.messages.resume import ResumeRepository
from hermes_orm.repositories.messages.rewriting import RewritingPlans, RewritingRepository
from hermes_orm.repositories.messages.undo import UndoRepository
from hermes_orm.repositories.messages.views import ViewRepository
from hermes_orm.repositories.meta import MetaRepository
from hermes_orm.repositories.retention.deletion import DeletionRepository
from hermes_orm.repositories.retention.pruning import PruningRepository
from hermes_orm.repositories.search.indexing import IndexingRepository
from hermes_orm.repositories.sessions.activity import ActivityRepository
from hermes_orm.repositories.sessions.counts import CountRepository
from hermes_orm.repositories.sessions.flags import FlagRepository
from hermes_orm.repositories.sessions.models import SessionModelRepository
from hermes_orm.repositories.sessions.sessions import SessionRepository
from hermes_orm.repositories.sessions.title_families import TitleFamilyRepository
from hermes_orm.repositories.sessions.titles import DERIVED, LLM, USER, TitleRepository
from hermes_orm.repositories.sessions.workspaces import WorkspaceRepository
from hermes_orm.repositories.usage.statistics import StatisticsRepository
from hermes_orm.repositories.usage.usage import UsageRepository
from hermes_orm.services import (
    chains,
    compaction,
    deletion,
    exports,
    imports,
    indexing,
    leases,
    listing,
    messages,
    meta,
    resume,
    retention,
    search,
    sessions,
    titles,
    upkeep,
    usage,
    workspaces,
)
from hermes_orm.session_text import MAX_TITLE_LENGTH, sanitize_title

Lend = Callable[[Callable[[AsyncConnection], Awaitable[Any]]], Awaitable[Any]]


class SessionDB(GatewayOperations):
    """Session store for AIAgent on SQLite or PostgreSQL.

    `db_path` is a file (None: `state.db` in the Hermes home), `:memory:`, or a URL
    `postgresql+asyncpg://...` or `postgresql+psycopg://...`. Nothing is opened before the first
    operation; the host closes the store once. Bad arguments raise ValueError or TypeError.
    """

    def __init__(
        self, db_path: str | os.PathLike[str] | None = None, read_only: bool = False
    ) -> None:
        location = locate(db_path)
        self.db_path: Path | str = (
            location.path if isinstance(location, SqliteLocation) else str(location)
        )
        self.read_only = read_only
        self.database = Database(location, dialect=make_dialect(location), read_only=read_only)
        self.database.after_opening = indexing.finish_rebuilds

    def __repr__(self) -> str:
        return f"SessionDB({str(self.db_path)!r}, read_only={self.read_only})"

    async def close(self) -> None:
        """Finish what runs and close every connection; operations raise RuntimeError then."""
        await self.database.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    @asynccontextmanager
    async def transaction(self, *, patience: float = DEFAULT_PATIENCE) -> AsyncIterator[Self]:
        """Yield a unit with the operations of the store, which commit together or not at all.

        Other writers of a SQLite file wait until the block ends, those of PostgreSQL where they
        need the same rows; the store itself reads what is committed. `patience` seconds are
        waited for others at the begin, inside no operation waits. Leaving by an error or a
        cancellation undoes everything; so does an operation that has failed, after which the unit
        takes no other. Raises RuntimeError for operations that wait or commit in steps, for a
        write of the same task through the store, and for a transaction inside of another.
        """
        async with self.database.transaction(patience) as database:
            unit = copy.copy(self)
            unit.database = database
            yield unit

    # The agent keeps its delegations, by SQL of its own, in a store that has these names.
    @property
    def _read_only(self) -> bool:
        return self.read_only

    @property
    def _read(self) -> Lend:
        return self._lending(commits=False)

    @property
    def _write(self) -> Lend:
        return self._lending(commits=True)

    def _lending(self, *, commits: bool) -> Lend:
        if not self.database.dialect.lends_connections:
            raise AttributeError("only a PostgreSQL store lends its connections")
        return functools.partial(self.database.lend, commits=commits)

    # Sessions
    create_session = runs(sessions.create_session, modifies=True)
    ensure_session = runs(sessions.ensure_session, modifies=True)
    get_session = reads(SessionRepository.get_session, scope="statement")
    resolve_session_id = reads(SessionRepository.resolve_session_id, scope="statement")
    end_session = runs(sessions.end_session, modifies=True)
    reopen_session = writes(SessionRepository.reopen_session)
    session_count = reads(CountRepository.session_count, scope="statement")
    session_count_by_source = reads(CountRepository.session_count_by_source, scope="statement")
    session_count_ge = reads(CountRepository.session_count_ge, scope="statement")
    count_empty_sessions = reads(CountRepository.count_empty_sessions, scope="statement")
    message_count = reads(CountRepository.message_count, scope="statement")

    # Models and routes
    update_system_prompt = writes(SessionModelRepository.update_system_prompt)
    update_session_meta = writes(
        SessionModelRepository.update_session_meta, scope="statement", settled=True
    )
    update_session_model = writes(SessionModelRepository.update_session_model, settled=True)
    update_session_runtime_lock = writes(SessionModelRepository.update_session_runtime_lock)
    update_session_billing_route = writes(
        SessionModelRepository.update_session_billing_route, settled=True
    )
    patch_session_model_config = writes(SessionModelRepository.patch_session_model_config)
    get_session_model_config_value = reads(
        SessionModelRepository.get_session_model_config_value, scope="statement"
    )

    # Workspaces
    update_session_cwd = writes(WorkspaceRepository.update_session_cwd, scope="statement")
    backfill_repo_roots = runs(workspaces.backfill_repo_roots, modifies=True)
    distinct_session_cwds = reads(WorkspaceRepository.distinct_session_cwds, scope="statement")

    # Titles
    MAX_TITLE_LENGTH = MAX_TITLE_LENGTH
    TITLE_SOURCE_DERIVED = DERIVED
    TITLE_SOURCE_LLM = LLM
    TITLE_SOURCE_USER = USER
    sanitize_title = staticmethod(sanitize_title)
    set_session_title = runs(titles.set_session_title, modifies=True)
    set_auto_title = runs(titles.set_auto_title, modifies=True)
    set_auto_title_if_empty = runs(titles.set_auto_title_if_empty, modifies=True)
    set_session_title_source = writes(TitleRepository.set_session_title_source, scope="statement")
    get_session_title = reads(TitleRepository.get_session_title, scope="statement")
    get_session_title_source = reads(TitleRepository.get_session_title_source, scope="statement")
    get_session_by_title = reads(TitleRepository.get_session_by_title, scope="statement")
    resolve_session_by_title = reads(
        TitleFamilyRepository.resolve_session_by_title, scope="statement"
    )
    get_next_title_in_lineage = reads(TitleFamilyRepository.get_next_title_in_lineage)

    # Flags, read state, activity
    set_session_archived = writes(FlagRepository.set_session_archived, scope="statement")
    set_session_pinned = writes(FlagRepository.set_session_pinned, scope="statement")
    set_session_hidden = writes(FlagRepository.set_session_hidden, scope="statement")
    set_session_read = writes(FlagRepository.set_session_read, scope="statement")
    session_unread = staticmethod(session_unread)
    touch_session_activity = writes(
        ActivityRepository.touch_session_activity,
        patience=ACTIVITY_PATIENCE,
        scope="statement",
        alone=True,
    )
    clear_session_activity_labels = writes(
        ActivityRepository.clear_session_activity_labels,
        patience=ACTIVITY_PATIENCE,
        scope="statement",
        alone=True,
    )
    get_session_activity = reads(ActivityRepository.get_session_activity, scope="statement")

    # Chains of sessions
    get_compression_tip = reads(ChainRepository.get_compression_tip, scope="statement")
    resolve_resume_session_id = runs(chains.resolve_resume_session_id)
    get_compression_lineage = reads(ChainRepository.get_compression_lineage, scope="statement")
    get_conversation_root = reads(ChainRepository.get_conversation_root, scope="statement")
    find_live_compression_child = reads(
        ChainRepository.find_live_compression_child, scope="statement"
    )
    _is_compression_child_row = reads(ChainRepository.is_compression_child_row, scope="statement")
    reopen_orphaned_compression_session = writes(
        OrphanRepository.reopen_orphaned_compression_session
    )
    finalize_orphaned_compression_sessions = writes(
        OrphanRepository.finalize_orphaned_compression_sessions, scope="statement"
    )

    # Lists
    list_sessions_rich = runs(listing.list_sessions_rich)
    get_session_rich_row = reads(
        ListingRepository.get_session_rich_row, scope="statement", settled=True
    )
    search_sessions = reads(ListingRepository.search_sessions, scope="statement")
    search_sessions_by_id = reads(
        ListingRepository.search_sessions_by_id, scope="statement", settled=True
    )
    list_skill_scaffolded_sessions = reads(
        OpeningRepository.list_skill_scaffolded_sessions, scope="statement"
    )
    get_first_assistant_text = reads(OpeningRepository.get_first_assistant_text, scope="statement")

    # Messages
    append_message = plans(
        MessagePlans.append_message, patience=TRANSCRIPT_PATIENCE, scope="statement"
    )
    append_messages_batch = runs(messages.append_messages_batch, modifies=True)
    replace_messages = runs(messages.replace_messages, modifies=True)
    clear_messages = writes(RewritingRepository.clear_messages)
    set_latest_user_api_content = plans(RewritingPlans.set_latest_user_api_content)
    rewind_to_message = writes(UndoRepository.rewind_to_message)
    restore_rewound = writes(UndoRepository.restore_rewound)
    get_messages = runs(messages.get_messages)
    get_messages_as_conversation = reads(
        ConversationRepository.get_messages_as_conversation, scope="statement"
    )
    get_resume_conversations = runs(resume.get_resume_conversations)
    get_ancestor_display_prefix = reads(
        ResumeRepository.get_ancestor_display_prefix, scope="statement"
    )
    get_resume_message_count = reads(ResumeRepository.get_resume_message_count, scope="statement")
    assert_resume_safe = runs(resume.assert_resume_safe)
    assert_export_safe = runs(resume.assert_export_safe)
    get_messages_around = reads(ViewRepository.get_messages_around, scope="statement")
    get_anchored_view = reads(ViewRepository.get_anchored_view, scope="statement")
    list_recent_user_messages = reads(LookupRepository.list_recent_user_messages, scope="statement")
    latest_message_row_id = reads(LookupRepository.latest_message_row_id, scope="statement")
    latest_user_message_row_id = reads(
        LookupRepository.latest_user_message_row_id, scope="statement"
    )
    get_message_role = reads(LookupRepository.get_message_role, scope="statement")
    has_platform_message_id = reads(LookupRepository.has_platform_message_id, scope="statement")
    has_archived_messages = reads(LookupRepository.has_archived_messages, scope="statement")
    get_active_message_watermark = reads(
        LookupRepository.get_active_message_watermark, scope="statement"
    )
    _get_message_storage_state = reads(
        LookupRepository.get_message_storage_state, scope="statement"
    )
    has_gateway_input_owner = reads(OwnershipRepository.has_gateway_input_owner, scope="statement")
    find_gateway_input_owner = reads(
        OwnershipRepository.find_gateway_input_owner, scope="statement"
    )

    # Leases
    try_acquire_compression_lock = runs(leases.try_acquire_compression_lock)
    refresh_compression_lock = runs(leases.refresh_compression_lock)
    release_compression_lock = runs(leases.release_compression_lock)
    get_compression_lock_holder = reads(
        LeaseRepository.get_compression_lock_holder, scope="statement"
    )
    try_acquire_session_turn_lease = runs(leases.try_acquire_session_turn_lease, modifies=True)
    acquire_session_turn_lease = runs(leases.acquire_session_turn_lease, modifies=True, joins=False)
    refresh_session_turn_lease = writes(
        LeaseRepository.refresh_session_turn_lease, scope="statement"
    )
    release_session_turn_lease = writes(
        LeaseRepository.release_session_turn_lease, scope="statement"
    )
    _session_turn_lease_key = reads(LeaseRepository.session_turn_lease_key, scope="statement")

    # Compression
    archive_and_compact = runs(compaction.archive_and_compact, modifies=True)
    publish_compression_child = runs(compaction.publish_compression_child, modifies=True)
    record_compression_failure_cooldown = writes(
        CompressionFailureRepository.record_compression_failure_cooldown, scope="statement"
    )
    clear_compression_failure_cooldown = writes(
        CompressionFailureRepository.clear_compression_failure_cooldown, scope="statement"
    )
    get_compression_failure_cooldown = reads(
        CompressionFailureRepository.get_compression_failure_cooldown, scope="statement"
    )
    get_compression_failure_cooldown_row = reads(
        CompressionFailureRepository.get_compression_failure_cooldown_row, scope="statement"
    )
    restore_compression_failure_cooldown_row = writes(
        CompressionFailureRepository.restore_compression_failure_cooldown_row
    )
    get_compression_fallback_streak = reads(
        CompressionFailureRepository.get_compression_fallback_streak, scope="statement"
    )
    set_compression_fallback_streak = writes(
        CompressionFailureRepository.set_compression_fallback_streak, scope="statement"
    )
    get_compression_ineffective_count = reads(
        CompressionFailureRepository.get_compression_ineffective_count, scope="statement"
    )
    set_compression_ineffective_count = writes(
        CompressionFailureRepository.set_compression_ineffective_count, scope="statement"
    )

    # Retention
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

    # Export and import
    export_session = runs(exports.export_session)
    export_session_lineage = runs(exports.export_session_lineage)
    export_all = runs(exports.export_all)
    iter_export = streams(exports.iter_export)
    import_sessions = runs(imports.import_sessions, modifies=True)

    # Usage
    update_token_counts = runs(usage.update_token_counts, modifies=True)
    record_auxiliary_usage = runs(usage.record_auxiliary_usage, modifies=True)
    queue_token_counts = runs(usage.queue_token_counts, modifies=True)
    flush_token_counts = runs(usage.flush_token_counts, joins=False)
    get_recent_session_model_route = reads(
        UsageRepository.get_recent_session_model_route, scope="statement", settled=True
    )
    usage_statistics = reads(StatisticsRepository.usage_statistics, scope="statement", settled=True)

    # Search
    search_messages = runs(search.search_messages)
    # Search indexes
    fts_rebuild_status = reads(IndexingRepository.fts_rebuild_status, scope="statement")
    fts_rebuild_step = runs(indexing.fts_rebuild_step, joins=False)
    fts_cjk_rebuild_status = reads(IndexingRepository.fts_cjk_rebuild_status, scope="statement")
    fts_cjk_rebuild_step = runs(indexing.fts_cjk_rebuild_step, joins=False)
    fts_optimize_available = runs(indexing.fts_optimize_available)
    optimize_fts = runs(indexing.optimize_fts, joins=False)
    rebuild_fts = runs(indexing.rebuild_fts, joins=False)
    optimize_fts_storage = runs(indexing.optimize_fts_storage, joins=False)

    # Metadata
    get_meta = reads(MetaRepository.get_meta, scope="statement")
    set_meta = runs(meta.set_meta, modifies=True)
