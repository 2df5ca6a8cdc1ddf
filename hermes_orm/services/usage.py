"""Usage of tokens: at once, or by a queue that nobody waits for."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Self, Unpack

from hermes_orm.background import Entry
from hermes_orm.database import Database, Transaction
from hermes_orm.repositories.usage.reports import Report, TokenCounts
from hermes_orm.repositories.usage.usage import UsageRepository

logger = logging.getLogger(__name__)


async def update_token_counts(
    database: Database,
    session_id: str,
    input_tokens: int | None = 0,
    output_tokens: int | None = 0,
    model: str | None = None,
    cache_read_tokens: int | None = 0,
    cache_write_tokens: int | None = 0,
    reasoning_tokens: int | None = 0,
    estimated_cost_usd: float | None = None,
    actual_cost_usd: float | None = None,
    cost_status: str | None = None,
    cost_source: str | None = None,
    pricing_version: str | None = None,
    billing_provider: str | None = None,
    billing_base_url: str | None = None,
    billing_mode: str | None = None,
    api_call_count: int | None = 0,
    absolute: bool = False,
) -> None:
    """Add what was used to the totals of the session and to the row of its model and route.

    `absolute` puts the numbers in the place of the session's totals and touches no row of a model.
    The first report of a model and provider that costs something tells what the session runs on;
    later ones only fill what is missing. A session that does not exist is created, unless this
    store has just deleted it. Impossible counts and costs are left out with a warning.
    Raises ValueError for a count beyond 64 bits, TypeError for what is no number.
    """
    report = Report.of(
        session_id,
        {
            "input_tokens": input_tokens,
            "output_tokens": output_tokens,
            "model": model,
            "cache_read_tokens": cache_read_tokens,
            "cache_write_tokens": cache_write_tokens,
            "reasoning_tokens": reasoning_tokens,
            "estimated_cost_usd": estimated_cost_usd,
            "actual_cost_usd": actual_cost_usd,
            "cost_status": cost_status,
            "cost_source": cost_source,
            "pricing_version": pricing_version,
            "billing_provider": billing_provider,
            "billing_base_url": billing_base_url,
            "billing_mode": billing_mode,
            "api_call_count": api_call_count,
            "absolute": absolute,
        },
    )
    await database.settle()
    await _record(database, report)


async def record_auxiliary_usage(
    database: Database,
    session_id: str,
    task: str,
    *,
    model: str | None = None,
    billing_provider: str | None = None,
    billing_base_url: str | None = None,
    input_tokens: int | None = 0,
    output_tokens: int | None = 0,
    cache_read_tokens: int | None = 0,
    cache_write_tokens: int | None = 0,
    reasoning_tokens: int | None = 0,
    estimated_cost_usd: float | None = None,
    api_call_count: int | None = 1,
) -> None:
    """Add what a task beside the main loop used to its own row; the session's totals stay.

    A session that does not exist is created, unless this store has just deleted it. Nothing happens
    without a session id or a task. Numbers are checked as `update_token_counts` does.
    """
    if not session_id or not task:
        return
    report = Report.auxiliary(
        session_id,
        task,
        {
            "model": model,
            "billing_provider": billing_provider,
            "billing_base_url": billing_base_url,
            "input_tokens": input_tokens,
            "output_tokens": output_tokens,
            "cache_read_tokens": cache_read_tokens,
            "cache_write_tokens": cache_write_tokens,
            "reasoning_tokens": reasoning_tokens,
            "estimated_cost_usd": estimated_cost_usd,
            "api_call_count": api_call_count,
        },
    )
    await database.settle()
    await _record(database, report)


async def queue_token_counts(
    database: Database, session_id: str, **kwargs: Unpack[TokenCounts]
) -> None:
    """Do what `update_token_counts` does, soon and in the order of the calls; wait for nothing.

    Adjacent reports of one route may become one write. A write that fails is logged and dropped.
    `close` stores what is queued. Raises TypeError for an unknown keyword, and what
    `update_token_counts` raises for its arguments.
    """
    report = Report.of(session_id, kwargs)
    if database.in_transaction or not database.token_queue.put(QueuedReport(database, report)):
        await database.settle()
        await _record(database, report)


async def flush_token_counts(database: Database, timeout: float | None = 5.0) -> bool:
    """Wait until no report is queued; False when `timeout` seconds are over before."""
    return await database.token_queue.flush(timeout)


@dataclass(frozen=True, slots=True)
class QueuedReport(Entry):
    """A report that waits."""

    database: Database
    report: Report

    def merged(self, later: Self) -> Self | None:
        """Return both as one, if only their numbers differ."""
        report = self.report.merged(later.report)
        return None if report is None else type(self)(self.database, report)

    async def apply(self) -> None:
        """Store it."""
        await _record(self.database, self.report)


async def _record(database: Database, report: Report) -> None:
    def work(tx: Transaction) -> None:
        usage = UsageRepository(tx)
        # A deletion may have been undone, and another store may have created the session anew.
        if report.session_id in database.tombstones and not usage.has_session(report.session_id):
            logger.debug("usage of the deleted session %r is dropped", report.session_id)
        else:
            usage.record(report)

    await database.write(work, scope="statement")
