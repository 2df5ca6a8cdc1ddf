"""Transcripts: writing and reading, leases, compression."""

from __future__ import annotations

from hermes_orm.database import TRANSCRIPT_PATIENCE, Database
from hermes_orm.facade import plans, reads, runs, writes
from hermes_orm.repositories.compression.failures import CompressionFailureRepository
from hermes_orm.repositories.compression.leases import LeaseRepository
from hermes_orm.repositories.messages.conversations import ConversationRepository
from hermes_orm.repositories.messages.lookups import LookupRepository
from hermes_orm.repositories.messages.messages import MessagePlans
from hermes_orm.repositories.messages.ownership import OwnershipRepository
from hermes_orm.repositories.messages.resume import ResumeRepository
from hermes_orm.repositories.messages.rewriting import RewritingPlans, RewritingRepository
from hermes_orm.repositories.messages.undo import UndoRepository
from hermes_orm.repositories.messages.views import ViewRepository
from hermes_orm.services import compaction, leases, messages, resume


class MessageOperations:
    """What a store does with messages."""

    database: Database

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
