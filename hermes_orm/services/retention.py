"""Archiving sessions, and the maintenance that hosts have done now and then."""

from __future__ import annotations

import logging
from typing import Final, Unpack

from hermes_orm import clock
from hermes_orm.arguments import finite_number, natural_number
from hermes_orm.database import Database
from hermes_orm.repositories.meta import MetaRepository
from hermes_orm.repositories.retention.filters import (
    DAY,
    PruneFilters,
    prune_filter,
    stale_filter,
)
from hermes_orm.repositories.retention.pruning import PruningRepository
from hermes_orm.rows import AutoArchiveResult, AutoPruneResult
from hermes_orm.services import deletion, upkeep
from hermes_orm.services.meta import set_meta

HOUR: Final = 3600
LAST_PRUNE: Final = "last_auto_prune"
LAST_ARCHIVE: Final = "last_auto_archive"
LAST_VACUUM: Final = "last_vacuum"

logger = logging.getLogger(__name__)


async def archive_sessions(
    database: Database,
    older_than_days: float | None = None,
    source: str | None = None,
    **filters: Unpack[PruneFilters],
) -> int:
    """Archive the ended sessions that match, with the rest of their compressed conversations.

    Return how many match. Filters and errors are those of `prune_sessions`, but `archived` is
    False unless given.
    """
    if filters.get("archived") is None:
        filters["archived"] = False
    wanted = prune_filter("ended", older_than_days, source, filters)
    return await database.write(lambda tx: PruningRepository(tx).archive(wanted))


async def archive_stale_sessions(
    database: Database, idle_days: float | None, *, exclude_pinned: bool = True
) -> int:
    """Archive conversations without message or other sign of life for some days; return how many.

    Open ones too. They come back with new activity. None or negative days archive nothing. Raises
    TypeError for what is no number of days, ValueError for one that is not finite.
    """
    if idle_days is None or finite_number(idle_days, "idle_days") < 0:
        return 0
    wanted = stale_filter(idle_days, exclude_pinned=exclude_pinned)
    return await database.write(lambda tx: PruningRepository(tx).archive(wanted, by_itself=True))


async def maybe_auto_prune_and_vacuum(
    database: Database,
    retention_days: float = 90,
    min_interval_hours: float = 24,
    vacuum: bool = True,
    sessions_dir: deletion.Directory = None,
    min_vacuum_interval_days: float = 30,
) -> AutoPruneResult:
    """Prune what is older than `retention_days`, unless that was done in the last hours.

    When something was pruned, and no vacuum ran for `min_vacuum_interval_days`, a vacuum follows
    where it is worth its cost. Never raises: `error` says what failed.
    """
    result: AutoPruneResult = {"skipped": False, "pruned": 0, "vacuumed": False}
    try:
        days = natural_number(retention_days, "retention_days")
        pause = natural_number(min_vacuum_interval_days, "min_vacuum_interval_days") * DAY
        if not await _is_due(database, LAST_PRUNE, min_interval_hours):
            return {**result, "skipped": True}
        result["pruned"] = await deletion.prune_sessions(database, days, sessions_dir=sessions_dir)
        if vacuum and result["pruned"] and await _is_over(database, LAST_VACUUM, pause):
            result["vacuumed"] = await _vacuumed(database)
        await _mark(database, LAST_PRUNE)
    except Exception as error:  # noqa: BLE001  (a failure must not stop the host)
        logger.warning("automatic pruning failed: %s", error)
        result["error"] = str(error)
    return result


async def maybe_auto_archive(
    database: Database,
    idle_days: float = 3,
    min_interval_hours: float = 24,
    exclude_pinned: bool = True,
) -> AutoArchiveResult:
    """Do what `archive_stale_sessions` does, unless that was done in the last hours.

    Never raises: `error` says what failed.
    """
    result: AutoArchiveResult = {"skipped": False, "archived": 0}
    try:
        if not await _is_due(database, LAST_ARCHIVE, min_interval_hours):
            return {**result, "skipped": True}
        result["archived"] = await archive_stale_sessions(
            database, idle_days, exclude_pinned=exclude_pinned
        )
        await _mark(database, LAST_ARCHIVE)
    except Exception as error:  # noqa: BLE001  (a failure must not stop the host)
        logger.warning("automatic archiving failed: %s", error)
        result["error"] = str(error)
    return result


async def _is_due(database: Database, key: str, min_interval_hours: float) -> bool:
    interval = natural_number(min_interval_hours, "min_interval_hours") * HOUR
    return await _is_over(database, key, interval)


async def _is_over(database: Database, key: str, seconds: float) -> bool:
    """Whether so much time has passed since a mark; a mark far in the future is none."""
    mark = await database.read(lambda tx: MetaRepository(tx).get_meta(key), scope="statement")
    try:
        age = clock.now() - float(mark or "")
    except ValueError:
        return True
    return not -seconds <= age < seconds


async def _mark(database: Database, key: str) -> None:
    await set_meta(database, key, clock.now())


async def _vacuumed(database: Database) -> bool:
    try:
        is_worth_it = await database.read(
            lambda tx: tx.dialect.upkeep.is_worth_vacuuming(tx), scope="statement"
        )
        if is_worth_it:
            await upkeep.vacuum(database)
            await _mark(database, LAST_VACUUM)
    except Exception as error:  # noqa: BLE001  (a later one will do)
        logger.warning("the vacuum after automatic pruning failed: %s", error)
        return False
    return is_worth_it
