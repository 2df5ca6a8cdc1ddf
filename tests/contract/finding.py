"""The corpus of the search examples, and what a search of it finds."""

from typing import Any

from hermes_orm import SessionDB
from tests.raw import Raw
from tests.search.corpora import CORPUS

UNDONE, ARCHIVED = 21, 22


async def tell_corpus(db: SessionDB, raw: Raw) -> None:
    """Write the sessions and messages of the corpus; the id of a message is its number."""
    for session in CORPUS["sessions"]:
        await db.create_session(
            session["id"],
            session["source"],
            model=session["model"],
            parent_session_id=session.get("parent_session_id"),
        )
        await raw.execute(
            "UPDATE sessions SET started_at = ?, hidden = ?, archived = ? WHERE id = ?",
            session["started_at"],
            session.get("hidden", 0),
            session.get("archived", 0),
            session["id"],
        )
    for message in CORPUS["messages"]:
        given = {key: value for key, value in message.items() if key in APPENDED}
        assert await db.append_message(**given) == message["id"]
    await raw.execute("UPDATE messages SET active = 0 WHERE id = ?", UNDONE)
    await raw.execute("UPDATE messages SET active = 0, compacted = 1 WHERE id = ?", ARCHIVED)


APPENDED = ("session_id", "role", "content", "timestamp", "tool_name", "tool_calls")


async def found(db: SessionDB, query: str | None, **arguments: Any) -> list[int]:
    """The ids of the hits, in their order."""
    return [hit["id"] for hit in await db.search_messages(query, **arguments)]


async def found_set(db: SessionDB, query: str | None, **arguments: Any) -> list[int]:
    """The ids of the hits, sorted."""
    return sorted(await found(db, query, **arguments))
