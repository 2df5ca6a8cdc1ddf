"""Token usage and costs."""

from __future__ import annotations

from hermes_orm.database import Database
from hermes_orm.facade import reads, runs
from hermes_orm.repositories.usage.statistics import StatisticsRepository
from hermes_orm.repositories.usage.usage import UsageRepository
from hermes_orm.services import usage


class UsageOperations:
    """What a store counts."""

    database: Database

    update_token_counts = runs(usage.update_token_counts, modifies=True)
    record_auxiliary_usage = runs(usage.record_auxiliary_usage, modifies=True)
    queue_token_counts = runs(usage.queue_token_counts, modifies=True)
    flush_token_counts = runs(usage.flush_token_counts, joins=False)
    get_recent_session_model_route = reads(
        UsageRepository.get_recent_session_model_route, scope="statement", settled=True
    )
    usage_statistics = reads(StatisticsRepository.usage_statistics, scope="statement", settled=True)
