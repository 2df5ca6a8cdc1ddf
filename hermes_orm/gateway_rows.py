"""Shapes of the dicts that gateway operations return."""

from typing import Any, Literal, TypedDict

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


class KeyedSession(TypedDict):
    """A session whose key names a profile."""

    id: str
    session_key: str
    key_profile: str


class MislabelledSession(KeyedSession):
    """A session whose label is not the profile that its key names."""

    profile_name: str


class ForeignSession(KeyedSession):
    """A session whose key names another profile than the store's."""

    message_count: int


class CrossedParent(TypedDict):
    """A session whose parent's key names another profile."""

    id: str
    key_profile: str
    parent_session_id: str
    parent_profile: str


class CrossedProfiles(TypedDict):
    """Sessions that are not where their keys say they belong."""

    mislabelled: list[MislabelledSession]
    foreign: list[ForeignSession]
    crossed_parents: list[CrossedParent]


class CrossedTopic(TypedDict):
    """A topic of the profile `default` whose session key names another one."""

    chat_id: str
    thread_id: str
    session_key: str
    key_profile: str


class RelabelledTopics(TypedDict):
    """What came of `relabel_telegram_topic_rows`."""

    bindings_relabelled: int
    bindings_duplicates_removed: int
    mode_rows_relabelled: int


class MovedSession(TypedDict):
    """All rows of a session, with the columns of their tables, for another store."""

    session: dict[str, Any]
    system_prompt: str | None
    tool_pin: str | None
    messages: list[dict[str, Any]]
    usage: list[dict[str, Any]]
