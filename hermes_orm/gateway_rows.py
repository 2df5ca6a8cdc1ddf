"""Shapes of the dicts that gateway operations return."""

from typing import Literal, TypedDict

from hermes_orm.rows import SessionRow


class GatewaySessionRow(SessionRow):
    """A row of `sessions` with where its conversation came from and which bot carries it."""

    created_source: str | None
    transport_profile: str | None


class ActiveGatewayRow(GatewaySessionRow):
    """The latest session of a gateway conversation with the time of its last sign of life."""

    last_active: float


class OrphanedSession(TypedDict):
    """A session that lost its key, and the one whose conversation it goes on with.

    `reason` tells why it is not `adoptable`; then there is no donor, unless several claim it.
    """

    orphan_id: str
    source: str
    message_count: int
    started_at: float
    last_active: float
    donor_id: str | None
    session_key: str | None
    evidence: Literal["", "lineage", "contiguity"]
    adoptable: bool
    reason: str


class RoutingRow(TypedDict):
    """The routing entry of a session key within a scope, as stored."""

    scope: str
    session_key: str
    entry_json: str
    updated_at: float


class NeverActiveSession(TypedDict):
    """An open session of a peer in which nothing ever happened."""

    id: str
    session_key: str
    source: str
    chat_id: str | None
    chat_type: str | None
    user_id: str | None
    started_at: float


class HandoffState(TypedDict):
    """Where the hand-off of a session is: all None when there never was one."""

    state: str | None
    platform: str | None
    error: str | None


class BackendHeartbeat(TypedDict):
    """The last sign of life of a process that serves the store."""

    backend_id: str
    pid: int
    started_at: float
    last_heartbeat: float
    profile: str
    host: str


class TopicBinding(TypedDict):
    """The session that a topic of a Telegram chat belongs to."""

    profile_name: str
    chat_id: str
    thread_id: str
    user_id: str
    session_key: str
    session_id: str
    managed_mode: str
    linked_at: float
    updated_at: float
