"""The operations of messaging gateways: one line each; what it does stands where it is defined."""

from __future__ import annotations

from hermes_orm.database import Database
from hermes_orm.facade import reads, runs, writes
from hermes_orm.repositories.gateway.origins import OriginRepository
from hermes_orm.repositories.gateway.runtime import session_gateway_runtime
from hermes_orm.repositories.sessions.end_reasons import RECOVERABLE_END_REASONS
from hermes_orm.repositories.sessions.generations import GenerationRepository
from hermes_orm.services import gateway


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
