"""Rows of `session_model_usage`, and the totals of sessions."""

from __future__ import annotations

from typing import Final

from sqlalchemy import bindparam, select

from hermes_orm.dialects import Prepared
from hermes_orm.dialects.accounting import ROUTE, UNKNOWN, count
from hermes_orm.models import Session, SessionModelUsage
from hermes_orm.repositories.base import Repository
from hermes_orm.repositories.usage.reports import Report
from hermes_orm.rows import ModelRoute
from hermes_orm.session_text import lookup_key

_ROUTE_KEYS: Final = (*ROUTE, "api_call_count")

FIND_SESSION = Prepared(select(Session.id).where(Session.id == bindparam("session_id")))
RECENT_ROUTE = Prepared(
    select(*(getattr(SessionModelUsage, name) for name in _ROUTE_KEYS))
    .where(
        SessionModelUsage.session_id == bindparam("session_id"),
        SessionModelUsage.task == "",
        SessionModelUsage.model != UNKNOWN,
        SessionModelUsage.billing_provider != "",
    )
    .order_by(
        SessionModelUsage.last_seen.desc().nulls_last(),
        SessionModelUsage.first_seen.desc().nulls_last(),
        *(getattr(SessionModelUsage, name) for name in ROUTE),
    )
    .limit(1)
)


class UsageRepository(Repository):
    """What sessions spent."""

    def record(self, report: Report) -> None:
        """Count a report; its session is created if need be."""
        if report.has_usage_row:
            self.tx.dialect.accounting.spend(self.tx, report.params, report.kind)
        else:
            self.tx.run(count(report.kind), report.params)

    def has_session(self, session_id: str) -> bool:
        """Return whether there is such a session."""
        return self.tx.first(FIND_SESSION, {"session_id": session_id}) is not None

    def get_recent_session_model_route(self, session_id: str) -> ModelRoute | None:
        """Return the model and billing route that the session's main loop used last, or None."""
        row = self.tx.first(RECENT_ROUTE, {"session_id": lookup_key(session_id)})
        return None if row is None else _model_route(*row)


def _model_route(model: str, provider: str, url: str, mode: str, calls: int) -> ModelRoute:
    return {
        "model": model,
        "billing_provider": provider,
        "billing_base_url": url,
        "billing_mode": mode,
        "api_call_count": calls,
    }
