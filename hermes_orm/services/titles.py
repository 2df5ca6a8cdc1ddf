"""Setting a title: one statement when nothing is in the way, and a transaction otherwise."""

from __future__ import annotations

from contextlib import suppress
from sqlite3 import IntegrityError

from hermes_orm.database import Database
from hermes_orm.dialects.prepared import Params
from hermes_orm.repositories.sessions.titles import (
    DERIVED,
    LLM,
    USER,
    TitleRepository,
    known_source,
    new_title,
)


async def set_session_title(database: Database, session_id: str, title: str | None) -> bool:
    """Give the session the user's title, or none for an empty one; False for an unknown session.

    Titles are cleaned by `sanitize_title`. A title is taken away from an earlier session that this
    one carries on. Raises ValueError when any other session has it, and for more than 100
    characters.
    """
    return await _set_title(database, new_title(session_id, title, USER))


async def set_auto_title(
    database: Database, session_id: str, title: str | None, *, source: str
) -> bool:
    """Give the session a title `derived` from its text or made by an `llm`.

    False, too, when it has a title that ranks as high: a user's ranks above a model's, and that
    above a derived one. Raises ValueError as `set_session_title` does, and for any other source.
    """
    known = known_source(source, (DERIVED, LLM), "automatic title")
    return await _set_title(database, new_title(session_id, title, known))


async def set_auto_title_if_empty(database: Database, session_id: str, title: str | None) -> bool:
    """Give the session a model's title, unless it has one that ranks as high."""
    return await _set_title(database, new_title(session_id, title, LLM))


async def _set_title(database: Database, new: Params) -> bool:
    async def settled() -> bool:
        return await database.write(lambda tx: TitleRepository(tx).settle(new))

    # Both databases' class. Another process took the title just now: a new look tells who.
    with suppress(IntegrityError):
        if await database.write(lambda tx: TitleRepository(tx).place(new), scope="statement"):
            return True
    with suppress(IntegrityError):
        return await settled()
    return await settled()
