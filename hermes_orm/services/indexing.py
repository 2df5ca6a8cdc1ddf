"""Keeping the indexes of messages: rebuilds in steps and at once, tidying, the newest form."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from hermes_orm.database import Database
from hermes_orm.dialects.indexing import CJK_REBUILD, REBUILD, Rebuild
from hermes_orm.errors import StoreClosedError
from hermes_orm.repositories.search.indexing import IndexingRepository
from hermes_orm.rows import StorageProgress, StorageResult
from hermes_orm.services.leftovers import finish_leftovers

DISCARDED_ROWS: Final = 500
LEAST_PAUSE_SECONDS: Final = 0.2
PAUSE_PER_STEP: Final = 4.0
"""Times that a pause is longer than the step before it: live writers come first."""
MOST_PAUSE_SECONDS: Final = 3.2
BREATH_SECONDS: Final = 0.02
"""Between portions of what was appended: it must not grow faster than it is indexed."""

T = TypeVar("T")
Progress = Callable[[StorageProgress], object]

logger = logging.getLogger("hermes_orm.search")


async def fts_rebuild_step(database: Database) -> bool:
    """Index the next messages of a pending rebuild; return whether work remains.

    Any number of processes may step. A step is one transaction over 500 row ids.
    """
    return await _step(database, REBUILD)


async def fts_cjk_rebuild_step(database: Database) -> bool:
    """Index the next messages of a pending rebuild of the CJK index, where there is one."""
    return await _step(database, CJK_REBUILD)


async def _step(database: Database, rebuild: Rebuild) -> bool:
    if database.read_only:
        return False
    try:
        return await database.write(lambda tx: IndexingRepository(tx).step(rebuild), alone=True)
    except Exception as error:
        if database.dialect.is_busy(error):
            return True
        raise


async def optimize_fts(database: Database) -> int:
    """Tidy the search indexes so that searches become faster; return how many were tidied."""
    if database.read_only:
        return 0
    return await database.write(
        lambda tx: IndexingRepository(tx).optimize(), alone=True, scope="statement"
    )


async def rebuild_fts(database: Database) -> int:
    """Build the search indexes anew from the messages, in one go; return how many.

    It repairs damaged indexes, and ends a rebuild in steps.
    """
    if database.read_only:
        return 0
    return await database.write(
        lambda tx: IndexingRepository(tx).rebuild(), alone=True, scope="maintenance"
    )


async def fts_optimize_available(database: Database) -> bool:
    """Return whether `optimize_fts_storage` has something to do."""
    if database.read_only:
        return False
    return await database.read(lambda tx: IndexingRepository(tx).is_improvable())


async def optimize_fts_storage(
    database: Database,
    *,
    progress_cb: Progress | None = None,
    vacuum: bool = True,
) -> StorageResult:
    """Bring the search indexes into their newest form, and finish pending rebuilds.

    It works in steps with pauses, so that others can write, and may be repeated after any crash.
    `progress_cb` is called with the phase and the counters after each step. Return `ok` and
    `vacuumed`, else the `reason`.
    """
    if database.read_only:
        return {"ok": False, "reason": "read_only"}
    database.stand_alone("optimize_fts_storage")
    if not await _alone(database, IndexingRepository.reshape):
        return {"ok": False, "reason": "fts5_unavailable"}
    await _report(database, progress_cb, "backfill")
    for step in (fts_rebuild_step, fts_cjk_rebuild_step):
        while await _paced(step(database)):
            await _report(database, progress_cb, "backfill")
    await _report(database, progress_cb, "backfill")
    await _report(database, progress_cb, "teardown")
    while await _paced(_alone(database, lambda own: own.discard(DISCARDED_ROWS))):
        await _report(database, progress_cb, "teardown")
    if reason := await _alone(database, IndexingRepository.unsettled):
        return {"ok": False, "reason": reason, "vacuumed": None}
    vacuumed = None
    if vacuum:
        await _report(database, progress_cb, "vacuum")
        vacuumed = await _vacuum(database)
    if reason := await _alone(database, IndexingRepository.settle):
        return {"ok": False, "reason": reason, "vacuumed": vacuumed}
    await _report(database, progress_cb, "done")
    return {"ok": True, "vacuumed": vacuumed}


async def follow(database: Database) -> None:
    """Finish indexes that were left to later, and index what is appended where that is deferred.

    It ends when nothing is left to do, or with the store; the next opening goes on.
    """
    if not database.settings.sessions.index_in_background:
        return
    try:
        await finish_leftovers(database)
        await _finish_rebuilds(database)
        await _keep_up(database)
    except Exception as error:  # noqa: BLE001  (nobody awaits this; searches scan what is left)
        if not isinstance(error, StoreClosedError):
            logger.warning("the search index is not finished: %s", type(error).__name__)


async def _finish_rebuilds(database: Database) -> None:
    if await database.read(lambda tx: IndexingRepository(tx).is_outdated()):
        await _alone(database, IndexingRepository.renew)
    if await database.read(lambda tx: IndexingRepository(tx).unsettled()) is None:
        return
    for step in (fts_rebuild_step, fts_cjk_rebuild_step):
        while await _paced(step(database)):
            pass
    while await _paced(_alone(database, lambda own: own.discard(DISCARDED_ROWS))):
        pass
    logger.info("the search index is complete")


async def _keep_up(database: Database) -> None:
    """Index what is appended, in portions; look for it less often while there is nothing."""
    pause = LEAST_PAUSE_SECONDS
    while database.dialect.indexing.defers:
        is_behind = await database.read(lambda tx: IndexingRepository(tx).is_behind())
        if is_behind and await _catch_up(database):
            pause = BREATH_SECONDS
        await asyncio.sleep(pause)
        pause = LEAST_PAUSE_SECONDS if is_behind else min(2 * pause, MOST_PAUSE_SECONDS)


async def _catch_up(database: Database) -> bool:
    try:
        return await _alone(database, IndexingRepository.catch_up)
    except Exception as error:
        if database.dialect.is_busy(error):
            return True
        raise


async def replace_damaged(database: Database) -> None:
    """Begin to build anew, once in the life of a store, the index that a search could not use.

    Searches scan what is still to be indexed.
    """
    indexing = database.dialect.indexing
    index, indexing.damaged = indexing.damaged, None
    if index is None or indexing.was_repaired or database.read_only or database.in_transaction:
        return
    indexing.was_repaired = True
    try:
        await _alone(database, lambda own: own.replace(index))
    except Exception as error:  # noqa: BLE001  (the search has its hits)
        logger.warning("the damaged search index stays: %s", type(error).__name__)
    else:
        database.follow()


async def _alone(database: Database, work: Callable[[IndexingRepository], T]) -> T:
    return await database.write(lambda tx: work(IndexingRepository(tx)), alone=True)


async def _paced(step: Awaitable[bool]) -> bool:
    """Take a step; leave the database to others for a while when there is more to do."""
    started = time.perf_counter()
    is_more = await step
    if is_more:
        took = time.perf_counter() - started
        await asyncio.sleep(max(LEAST_PAUSE_SECONDS, PAUSE_PER_STEP * took))
    return is_more


async def _report(database: Database, progress_cb: Progress | None, phase: str) -> None:
    if progress_cb is None:
        return
    status = await database.read(lambda tx: IndexingRepository(tx).status())
    percent, indexed, total = 100, 0, 0
    if status is not None:
        percent, indexed, total = status["percent"], status["indexed"], status["total"]
    progress_cb({"phase": phase, "percent": percent, "indexed": indexed, "total": total})


async def _vacuum(database: Database) -> bool:
    try:
        await database.write(
            lambda tx: tx.dialect.upkeep.vacuum(tx), alone=True, scope="maintenance"
        )
    except Exception as error:  # noqa: BLE001  (the indexes are what was asked for)
        logger.warning("the indexes are in order, but VACUUM failed: %s", error)
        return False
    return True
