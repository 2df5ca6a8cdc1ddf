"""Resuming: a host that cannot find out where to go on must still be able to start."""

from __future__ import annotations

import logging
import sqlite3

from hermes_orm.database import Database
from hermes_orm.repositories.lineage.chains import ChainRepository

logger = logging.getLogger(__name__)


async def resolve_resume_session_id(database: Database, session_id: str) -> str:
    """Return the id of the session in which to go on: of the deepest that has messages.

    From the tip on, the latest child that is no fork and no branch is followed. Without any
    messages there it is the tip; so it is, with a warning, when the database fails, or the given
    id when that cannot be found either.
    """
    try:
        return await database.read(
            lambda tx: ChainRepository(tx).resolve_resume_session_id(session_id), scope="statement"
        )
    except sqlite3.Error as error:
        logger.warning("no session to resume could be found for %r: %s", session_id, error)
    try:
        tip = await database.read(
            lambda tx: ChainRepository(tx).get_compression_tip(session_id), scope="statement"
        )
    except sqlite3.Error:
        return session_id
    return session_id if tip is None else tip
