"""Messaging gateway: routing, cooldowns, liveness and conversation counters."""

from sqlalchemy.orm import Mapped, mapped_column

from hermes_orm.models.base import Base, BigInt, Count, EpochSeconds, JsonText, TextOrEmpty


class GatewayRouting(Base):
    """The routing entry of a session key within a scope."""

    __tablename__ = "gateway_routing"

    scope: Mapped[TextOrEmpty] = mapped_column(primary_key=True)
    session_key: Mapped[str] = mapped_column(primary_key=True)
    entry_json: Mapped[JsonText]
    updated_at: Mapped[EpochSeconds]


class GatewayHygieneState(Base):
    """How many cleanups of a session key failed in a row."""

    __tablename__ = "gateway_hygiene_state"

    session_key: Mapped[str] = mapped_column(primary_key=True)
    failure_streak: Mapped[Count]


class GatewayHeartbeat(Base):
    """The last sign of life of a serving process."""

    __tablename__ = "gateway_heartbeats"

    backend_id: Mapped[str] = mapped_column(primary_key=True)
    pid: Mapped[BigInt]
    started_at: Mapped[EpochSeconds]
    last_heartbeat: Mapped[EpochSeconds]
    profile: Mapped[TextOrEmpty]
    host: Mapped[TextOrEmpty]


class ConversationGeneration(Base):
    """A counter per peer that only grows: rows are never deleted."""

    __tablename__ = "conversation_generations"

    source: Mapped[str] = mapped_column(primary_key=True)
    session_key: Mapped[str] = mapped_column(primary_key=True)
    generation: Mapped[Count]
