"""Sessions: creation, metadata, titles, flags, chains, lists."""

from __future__ import annotations

from hermes_orm.database import ACTIVITY_PATIENCE, Database
from hermes_orm.facade import reads, runs, writes
from hermes_orm.repositories.lineage.chains import ChainRepository
from hermes_orm.repositories.lineage.orphans import OrphanRepository
from hermes_orm.repositories.listing.listing import ListingRepository, session_unread
from hermes_orm.repositories.listing.openings import OpeningRepository
from hermes_orm.repositories.meta import MetaRepository
from hermes_orm.repositories.sessions.activity import ActivityRepository
from hermes_orm.repositories.sessions.counts import CountRepository
from hermes_orm.repositories.sessions.flags import FlagRepository
from hermes_orm.repositories.sessions.models import SessionModelRepository
from hermes_orm.repositories.sessions.sessions import SessionRepository
from hermes_orm.repositories.sessions.title_families import TitleFamilyRepository
from hermes_orm.repositories.sessions.titles import DERIVED, LLM, USER, TitleRepository
from hermes_orm.repositories.sessions.workspaces import WorkspaceRepository
from hermes_orm.services import chains, listing, meta, sessions, titles, workspaces
from hermes_orm.session_text import MAX_TITLE_LENGTH, sanitize_title


class SessionOperations:
    """What a store does with sessions."""

    database: Database

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

    # Metadata
    get_meta = reads(MetaRepository.get_meta, scope="statement")
    set_meta = runs(meta.set_meta, modifies=True)
