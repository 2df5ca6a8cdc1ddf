"""The operations of messaging gateways: one line each; what it does stands where it is defined."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from hermes_orm.database import ACTIVITY_PATIENCE, Database
from hermes_orm.facade import reads, runs, writes
from hermes_orm.repositories.deliveries.delegations import DelegationRepository
from hermes_orm.repositories.deliveries.obligations import ObligationRepository
from hermes_orm.repositories.gateway.cron_runs import CronRunRepository
from hermes_orm.repositories.gateway.handoffs import HandoffRepository
from hermes_orm.repositories.gateway.heartbeats import HeartbeatRepository
from hermes_orm.repositories.gateway.hygiene import HygieneRepository
from hermes_orm.repositories.gateway.moves import MoveRepository
from hermes_orm.repositories.gateway.never_active import NeverActiveRepository
from hermes_orm.repositories.gateway.origins import OriginRepository
from hermes_orm.repositories.gateway.profiles import ProfileRepository
from hermes_orm.repositories.gateway.reaping import ReapingRepository
from hermes_orm.repositories.gateway.renaming import RenamingRepository
from hermes_orm.repositories.gateway.routing import RoutingRepository
from hermes_orm.repositories.gateway.runtime import session_gateway_runtime
from hermes_orm.repositories.gateway.topic_profiles import TopicProfileRepository
from hermes_orm.repositories.gateway.topic_tables import TopicTableRepository
from hermes_orm.repositories.gateway.topics import TopicRepository
from hermes_orm.repositories.sessions.end_reasons import RECOVERABLE_END_REASONS
from hermes_orm.repositories.sessions.generations import GenerationRepository
from hermes_orm.services import delegations, deliveries, gateway, moves, topics


class GatewayOperations:
    """The part of a store that messaging gateways use."""

    database: Database

    RECOVERABLE_END_REASONS = RECOVERABLE_END_REASONS

    def own_profile_name(self) -> str | None:
        """Return the profile that owns the store; None when nothing tells, or several share it."""
        return self.database.own_profile

    _own_profile_name = own_profile_name

    # Peers
    session_gateway_runtime = staticmethod(session_gateway_runtime)
    record_gateway_session_peer = runs(gateway.record_gateway_session_peer, modifies=True)
    find_latest_gateway_session_for_peer = runs(gateway.find_latest_gateway_session_for_peer)
    find_session_by_origin = reads(OriginRepository.find_session_by_origin, scope="statement")
    list_gateway_sessions = reads(
        OriginRepository.list_gateway_sessions, scope="statement", settled=True
    )
    set_expiry_finalized = writes(OriginRepository.set_expiry_finalized, scope="statement")
    promote_to_session_reset = writes(OriginRepository.promote_to_session_reset)
    latest_conversation_boundary = reads(
        GenerationRepository.latest_conversation_boundary, scope="statement"
    )

    # Orphans
    find_orphaned_gateway_sessions = runs(gateway.find_orphaned_gateway_sessions)
    adopt_orphaned_gateway_session = runs(gateway.adopt_orphaned_gateway_session, modifies=True)
    sweep_orphaned_sessions = runs(gateway.sweep_orphaned_sessions, modifies=True)
    unarchive_recoverable_session = writes(ReapingRepository.unarchive_recoverable_session)
    list_never_active_keyed_sessions = reads(
        NeverActiveRepository.list_never_active_keyed_sessions, scope="statement"
    )
    prune_never_active_keyed_sessions = runs(
        gateway.prune_never_active_keyed_sessions, modifies=True
    )

    # Routing entries
    save_gateway_routing_entry = writes(
        RoutingRepository.save_gateway_routing_entry, scope="statement"
    )
    replace_gateway_routing_entries = writes(RoutingRepository.replace_gateway_routing_entries)
    load_gateway_routing_entries = reads(
        RoutingRepository.load_gateway_routing_entries, scope="statement"
    )
    delete_gateway_routing_entries = writes(RoutingRepository.delete_gateway_routing_entries)
    list_gateway_routing_rows = reads(
        RoutingRepository.list_gateway_routing_rows, scope="statement"
    )
    delete_gateway_routing_rows = writes(RoutingRepository.delete_gateway_routing_rows)
    insert_gateway_routing_rows_if_absent = writes(
        RoutingRepository.insert_gateway_routing_rows_if_absent
    )
    gateway_routing_entry_for_session = reads(
        RoutingRepository.gateway_routing_entry_for_session, scope="statement"
    )

    # Hand-offs
    request_handoff = writes(HandoffRepository.request_handoff, scope="statement")
    get_handoff_state = reads(HandoffRepository.get_handoff_state, scope="statement")
    list_pending_handoffs = reads(HandoffRepository.list_pending_handoffs, scope="statement")
    has_pending_handoffs = reads(HandoffRepository.has_pending_handoffs, scope="statement")
    claim_handoff = writes(HandoffRepository.claim_handoff, scope="statement")
    claim_pending_handoffs = writes(HandoffRepository.claim_pending_handoffs)
    complete_handoff = writes(HandoffRepository.complete_handoff, scope="statement")
    fail_handoff = writes(HandoffRepository.fail_handoff, scope="statement")
    reclaim_stale_running_handoffs = writes(HandoffRepository.reclaim_stale_running_handoffs)

    @asynccontextmanager
    async def handoff_watcher_lock(self) -> AsyncIterator[bool]:
        """Be the one watcher of hand-offs of this store while the block runs.

        Yields False when another store is it. A watcher begins with
        `reclaim_stale_running_handoffs`. Held on a PostgreSQL connection of its own, not behind a
        transaction pooler (RuntimeError), and in a file beside a SQLite database.
        """
        self.database.stand_alone("handoff_watcher_lock")
        async with self.database.exclusively("handoff-watcher") as is_held:
            yield is_held

    # Gateway processes and jobs
    register_backend_heartbeat = writes(
        HeartbeatRepository.register_backend_heartbeat,
        patience=ACTIVITY_PATIENCE,
        scope="statement",
        alone=True,
    )
    clear_backend_heartbeat = writes(
        HeartbeatRepository.clear_backend_heartbeat,
        patience=ACTIVITY_PATIENCE,
        scope="statement",
        alone=True,
    )
    prune_stale_heartbeats = writes(HeartbeatRepository.prune_stale_heartbeats)
    list_backend_heartbeats = reads(HeartbeatRepository.list_backend_heartbeats, scope="statement")
    increment_hygiene_failure_streak = writes(
        HygieneRepository.increment_hygiene_failure_streak, scope="statement"
    )
    reset_hygiene_failure_streak = writes(
        HygieneRepository.reset_hygiene_failure_streak, scope="statement"
    )
    list_cron_job_runs = reads(
        CronRunRepository.list_cron_job_runs, scope="statement", settled=True
    )

    # Background delegations
    record_delegation_dispatch = runs(delegations.record_delegation_dispatch, modifies=True)
    renew_delegation_leases = runs(delegations.renew_delegation_leases, modifies=True)
    record_delegation_completion = runs(delegations.record_delegation_completion, modifies=True)
    delete_delegation_dispatch = writes(
        DelegationRepository.delete_delegation_dispatch, scope="statement"
    )
    recover_abandoned_delegations = runs(delegations.recover_abandoned_delegations, modifies=True)
    restore_undelivered_completions = runs(
        delegations.restore_undelivered_completions, modifies=True, joins=False
    )
    get_durable_delegation = reads(DelegationRepository.get_durable_delegation, scope="statement")
    claim_completion_delivery = runs(delegations.claim_completion_delivery, modifies=True)
    claim_event_delivery = runs(delegations.claim_event_delivery, modifies=True)
    release_completion_delivery = runs(delegations.release_completion_delivery, modifies=True)
    drop_completion_delivery = runs(delegations.drop_completion_delivery, modifies=True)
    complete_completion_delivery = runs(delegations.complete_completion_delivery, modifies=True)
    mark_completion_delivered = runs(delegations.mark_completion_delivered, modifies=True)

    # Ledger of replies
    record_obligation = runs(deliveries.record_obligation, modifies=True)
    mark_attempting = runs(deliveries.mark_attempting, modifies=True)
    mark_delivered = writes(ObligationRepository.mark_delivered)
    mark_failed = writes(ObligationRepository.mark_failed)
    release_runtime_claim = writes(ObligationRepository.release_runtime_claim)
    record_crash_left_reply = runs(deliveries.record_crash_left_reply, modifies=True)
    sweep_recoverable = runs(deliveries.sweep_recoverable, modifies=True)
    sweep_failed_for_runtime = runs(deliveries.sweep_failed_for_runtime, modifies=True)
    pending_retries = runs(deliveries.pending_retries)

    # Telegram topics
    apply_telegram_topic_migration = writes(TopicTableRepository.apply_telegram_topic_migration)
    enable_telegram_topic_mode = writes(TopicRepository.enable_telegram_topic_mode)
    disable_telegram_topic_mode = writes(TopicRepository.disable_telegram_topic_mode)
    is_telegram_topic_mode_enabled = runs(
        topics.answer(TopicRepository.is_telegram_topic_mode_enabled)
    )
    bind_telegram_topic = writes(TopicRepository.bind_telegram_topic)
    get_telegram_topic_binding = runs(topics.answer(TopicRepository.get_telegram_topic_binding))
    list_telegram_topic_bindings_for_chat = runs(
        topics.answer(TopicRepository.list_telegram_topic_bindings_for_chat)
    )
    get_telegram_topic_binding_by_session = runs(
        topics.answer(TopicRepository.get_telegram_topic_binding_by_session)
    )
    is_telegram_session_linked_to_topic = runs(
        topics.answer(TopicRepository.is_telegram_session_linked_to_topic)
    )
    delete_telegram_topic_binding = writes(TopicRepository.delete_telegram_topic_binding)
    list_unlinked_telegram_sessions_for_user = runs(
        topics.answer(
            TopicRepository.list_unlinked_telegram_sessions_for_user,
            scope="snapshot",
        )
    )
    find_profile_less_telegram_topic_rows = runs(
        topics.answer(TopicProfileRepository.find_profile_less_telegram_topic_rows)
    )
    relabel_telegram_topic_rows = writes(TopicProfileRepository.relabel_telegram_topic_rows)

    # Profiles
    rekey_profile_state = writes(RenamingRepository.rekey_profile_state)
    purge_profile_state = writes(ProfileRepository.purge_profile_state)
    backfill_null_session_profiles = writes(
        ProfileRepository.backfill_null_session_profiles, scope="statement"
    )
    find_crossed_profile_sessions = reads(
        ProfileRepository.find_crossed_profile_sessions, scope="statement"
    )
    relabel_sessions_to_key_profile = writes(ProfileRepository.relabel_sessions_to_key_profile)
    sever_crossed_parents = writes(ProfileRepository.sever_crossed_parents)
    rekey_legacy_main_sessions = writes(ProfileRepository.rekey_legacy_main_sessions)
    key_profiles_for_chat = reads(ProfileRepository.key_profiles_for_chat, scope="statement")
    export_session_for_move = reads(MoveRepository.export_session_for_move, settled=True)
    import_moved_session = runs(moves.import_moved_session, modifies=True)
    delete_moved_session = runs(moves.delete_moved_session, modifies=True)
    count_messages_all = reads(MoveRepository.count_messages_all, scope="statement")
