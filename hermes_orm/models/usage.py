"""Token usage and cost per session, model, billing route and task."""

from sqlalchemy import ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from hermes_orm.models.base import Base, EpochSeconds, TextOrEmpty, Total, UsdTotal


class SessionModelUsage(Base):
    """What one session spent on one model over one billing route for one task."""

    __tablename__ = "session_model_usage"

    session_id: Mapped[str] = mapped_column(
        ForeignKey("sessions.id", ondelete="CASCADE"), primary_key=True
    )
    model: Mapped[str] = mapped_column(primary_key=True)
    billing_provider: Mapped[TextOrEmpty] = mapped_column(primary_key=True)
    billing_base_url: Mapped[TextOrEmpty] = mapped_column(primary_key=True)
    billing_mode: Mapped[TextOrEmpty] = mapped_column(primary_key=True)
    task: Mapped[TextOrEmpty] = mapped_column(primary_key=True)
    api_call_count: Mapped[Total]
    input_tokens: Mapped[Total]
    output_tokens: Mapped[Total]
    cache_read_tokens: Mapped[Total]
    cache_write_tokens: Mapped[Total]
    reasoning_tokens: Mapped[Total]
    estimated_cost_usd: Mapped[UsdTotal]
    actual_cost_usd: Mapped[UsdTotal]
    cost_status: Mapped[str | None]
    cost_source: Mapped[str | None]
    first_seen: Mapped[EpochSeconds | None]
    last_seen: Mapped[EpochSeconds | None]


Index("idx_session_model_usage_session", SessionModelUsage.session_id)
Index("idx_session_model_usage_model", SessionModelUsage.model)
