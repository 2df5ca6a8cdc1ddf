"""Ledger of replies that the gateway owes its users."""

from sqlalchemy import Index
from sqlalchemy.orm import Mapped, mapped_column

from hermes_orm.models.base import Base, BigInt, Count, EpochSeconds, Total


class DeliveryObligation(Base):
    """A reply on its way to a chat; `delivery_fence` grows whenever somebody takes it over."""

    __tablename__ = "delivery_obligations"

    obligation_id: Mapped[str] = mapped_column(primary_key=True)
    session_key: Mapped[str]
    platform: Mapped[str]
    chat_id: Mapped[str]
    thread_id: Mapped[str | None]
    content: Mapped[str]
    state: Mapped[str]
    attempts: Mapped[Count]
    created_at: Mapped[EpochSeconds]
    updated_at: Mapped[EpochSeconds]
    owner_pid: Mapped[BigInt | None]
    owner_started_at: Mapped[BigInt | None]
    last_error: Mapped[str | None]
    adapter_profile: Mapped[str | None]
    delivery_fence: Mapped[Total]
    owner_installation_id: Mapped[str | None]
    owner_host: Mapped[str | None]
    owner_generation: Mapped[str | None]
    lease_expires_at: Mapped[EpochSeconds | None]


Index(
    "idx_delivery_obligations_state",
    DeliveryObligation.state,
    DeliveryObligation.platform,
    DeliveryObligation.adapter_profile,
)
