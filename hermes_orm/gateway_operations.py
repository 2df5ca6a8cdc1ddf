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
from hermes_orm.repositories.gateway.origins import OriginRepository
from hermes_orm.repositories.gateway.runtime import session_gateway_runtime
from hermes_orm.repositories.sessions.end_reasons import RECOVERABLE_END_REASONS
from hermes_orm.repositories.sessions.generations import GenerationRepository
from hermes_orm.services import delegations, deliveries, gateway


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
