"""Leases: who may compress a session, who may take a turn in a conversation."""

from sqlalchemy import Index
from sqlalchemy.orm import Mapped, mapped_column

from hermes_orm.models.base import Base, EpochSeconds


class CompressionLock(Base):
    """The holder that may compress a session until `expires_at`."""

    __tablename__ = "compression_locks"

    session_id: Mapped[str] = mapped_column(primary_key=True)
    holder: Mapped[str]
    acquired_at: Mapped[EpochSeconds]
    expires_at: Mapped[EpochSeconds]


class SessionTurnLease(Base):
    """The holder that may append to a conversation until `expires_at`."""

    __tablename__ = "session_turn_leases"

    conversation_id: Mapped[str] = mapped_column(primary_key=True)
    holder: Mapped[str]
    acquired_at: Mapped[EpochSeconds]
    expires_at: Mapped[EpochSeconds]


Index("idx_compression_locks_expires", CompressionLock.expires_at)
Index("idx_session_turn_leases_expires", SessionTurnLease.expires_at)
