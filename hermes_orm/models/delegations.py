"""Background delegations."""

from sqlalchemy import Index, text
from sqlalchemy.orm import Mapped, mapped_column

from hermes_orm.models.base import Base, BigInt, Count, EpochSeconds, JsonText, TextOrEmpty


class AsyncDelegation(Base):
    """A task handed to a background agent, and the delivery of its result."""

    __tablename__ = "async_delegations"

    delegation_id: Mapped[str] = mapped_column(primary_key=True)
    origin_session: Mapped[str]
    origin_ui_session_id: Mapped[TextOrEmpty]
    parent_session_id: Mapped[str | None]
    state: Mapped[str]
    dispatched_at: Mapped[EpochSeconds]
    completed_at: Mapped[EpochSeconds | None]
    updated_at: Mapped[EpochSeconds]
    event_json: Mapped[JsonText | None]
    result_json: Mapped[JsonText | None]
    delivery_state: Mapped[str] = mapped_column(server_default=text("'pending'"))
    delivery_attempts: Mapped[Count]
    delivered_at: Mapped[EpochSeconds | None]
    owner_pid: Mapped[BigInt | None]
    owner_started_at: Mapped[BigInt | None]
    task_json: Mapped[JsonText | None]
    delivery_claim: Mapped[str | None]
    delivery_claimed_at: Mapped[EpochSeconds | None]
    origin_session_id: Mapped[TextOrEmpty]


Index(
    "idx_async_delegations_delivery",
    AsyncDelegation.delivery_state,
    AsyncDelegation.completed_at,
)
