"""Token usage and cost per session, model, billing route and task."""

from sqlalchemy import ForeignKey, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from hermes_orm.models.base import Base, EpochSeconds, Total, Usd

_EMPTY = text("''")
_ZERO = text("0")


class SessionModelUsage(Base):
    """What one session spent on one model over one billing route for one task."""

    __tablename__ = "session_model_usage"

    session_id: Mapped[str] = mapped_column(
        ForeignKey("sessions.id", ondelete="CASCADE"), primary_key=True
    )
    model: Mapped[str] = mapped_column(primary_key=True)
    billing_provider: Mapped[str] = mapped_column(primary_key=True, server_default=_EMPTY)
    billing_base_url: Mapped[str] = mapped_column(primary_key=True, server_default=_EMPTY)
    billing_mode: Mapped[str] = mapped_column(primary_key=True, server_default=_EMPTY)
    task: Mapped[str] = mapped_column(primary_key=True, server_default=_EMPTY)
    api_call_count: Mapped[Total]
    input_tokens: Mapped[Total]
    output_tokens: Mapped[Total]
    cache_read_tokens: Mapped[Total]
    cache_write_tokens: Mapped[Total]
    reasoning_tokens: Mapped[Total]
    estimated_cost_usd: Mapped[Usd] = mapped_column(server_default=_ZERO)
    actual_cost_usd: Mapped[Usd] = mapped_column(server_default=_ZERO)
    cost_status: Mapped[str | None]
    cost_source: Mapped[str | None]
    first_seen: Mapped[EpochSeconds | None]
    last_seen: Mapped[EpochSeconds | None]


Index("idx_session_model_usage_session", SessionModelUsage.session_id)
Index("idx_session_model_usage_model", SessionModelUsage.model)
