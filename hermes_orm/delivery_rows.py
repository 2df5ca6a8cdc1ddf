"""TypedDicts that operations on background delegations and on the ledger of replies return."""

from __future__ import annotations

from typing import Any, NamedTuple, NotRequired, TypedDict


class DurableDelegation(TypedDict):
    """What is known of a background delegation; `result` is None until there is one."""

    delegation_id: str
    origin_session: str
    state: str
    dispatched_at: float
    completed_at: float | None
    result: Any
    delivery_state: str
    delivery_attempts: int
    origin_session_id: str


class DeliveryReceipt(NamedTuple):
    """The right to report on a reply: worth nothing once somebody else has taken it over."""

    obligation_id: str
    fence: int


class ClaimedObligation(TypedDict):
    """A reply that the caller is to send now or, if `adopted`, not before `not_before`."""

    obligation_id: str
    receipt: DeliveryReceipt
    session_key: str
    platform: str
    chat_id: str
    thread_id: str | None
    content: str
    needs_marker: bool
    profile: str
    attempts: int
    marker: NotRequired[str]
    runtime_recovery: NotRequired[bool]
    last_error: NotRequired[str]
    adopted: NotRequired[bool]
    not_before: NotRequired[float]


class PendingRetry(TypedDict):
    """When this process is to look for replies of a platform and profile again."""

    platform: str
    profile: str
    not_before: float
