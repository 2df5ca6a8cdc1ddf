"""Session operations that send one statement in the usual case, and a transaction otherwise."""

from __future__ import annotations

from typing import Unpack

from hermes_orm.database import TRANSCRIPT_PATIENCE, Database, Scope, Transaction
from hermes_orm.repositories.sessions.creation import (
    CreationRepository,
    NewSession,
    NewSessionFields,
    SessionFields,
)
from hermes_orm.repositories.sessions.end_reasons import RESET_END_REASONS
from hermes_orm.repositories.sessions.sessions import SessionRepository


async def create_session(
    database: Database, session_id: str, source: str, **kwargs: Unpack[NewSessionFields]
) -> str:
    """Create the session, or fill what its row does not hold yet; return its id.

    Stored values, the source and the end of an existing session stay as they are. A child inherits
    working directory and profile, the continuation of a compressed session its peer, too.
    Raises TypeError for an unknown keyword or a config that is not JSON; ValueError for an id with
    U+0000 or a lone surrogate, and for a parent that descends from the session; an integrity error
    for a parent that does not exist. Nothing is written then.
    """
    await _create(database, NewSession.of(session_id, source, kwargs))
    return session_id


async def ensure_session(
    database: Database,
    session_id: str,
    source: str = "unknown",
    model: str | None = None,
    **kwargs: Unpack[SessionFields],
) -> str:
    """Do what `create_session` does; the source is known too late, or not at all."""
    await _create(database, NewSession.of(session_id, source, {**kwargs, "model": model}))
    return session_id


async def end_session(database: Database, session_id: str, end_reason: str | None) -> None:
    """End the session, unless it has ended: the first reason wins.

    A reset of a gateway conversation also advances the generation of its peer.
    """

    def work(tx: Transaction) -> None:
        SessionRepository(tx).end_session(session_id, end_reason)

    scope: Scope = "transaction" if end_reason in RESET_END_REASONS else "statement"
    await database.write(work, scope=scope)


async def _create(database: Database, new: NewSession) -> None:
    if not new.stands_alone or not await database.write(
        lambda tx: CreationRepository(tx).place(new, database.own_profile),
        scope="statement",
        patience=TRANSCRIPT_PATIENCE,
    ):
        await database.write(
            lambda tx: CreationRepository(tx).create(new, database.own_profile),
            patience=TRANSCRIPT_PATIENCE,
        )
    database.tombstones.lift(new.row["id"])
