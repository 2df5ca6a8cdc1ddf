"""The size of a store, and giving back the room of what was deleted."""

from __future__ import annotations

import logging

from hermes_orm.database import Database
from hermes_orm.services.indexing import optimize_fts

logger = logging.getLogger(__name__)


async def logical_size_bytes(database: Database) -> int | None:
    """Return the bytes of the store's tables and indexes, without a WAL; None on any error."""
    try:
        return await database.read(lambda tx: tx.dialect.upkeep.size(tx), scope="statement")
    except Exception as error:  # noqa: BLE001  (the size is for information only)
        logger.debug("the size of the store is unknown: %s", error)
        return None


async def vacuum(database: Database) -> int:
    """Tidy the search indexes and give the room of deleted rows back; return how many were tidied.

    On SQLite the file is rewritten: nobody else can write meanwhile, and its disk needs room for
    two copies. Raises when another process keeps the database locked. Returns 1 on PostgreSQL,
    where a plain VACUUM locks nobody out.
    """
    tidied = await _tidied(database)
    await database.write(lambda tx: tx.dialect.upkeep.vacuum(tx), scope="maintenance", alone=True)
    return tidied


async def _tidied(database: Database) -> int:
    try:
        return await optimize_fts(database)
    except Exception as error:  # noqa: BLE001  (the room comes back all the same)
        logger.warning("the search indexes were not tidied: %s", error)
        return 0
