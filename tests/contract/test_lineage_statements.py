"""A walk is one statement, however long the chain."""

from collections.abc import Callable
from typing import Any

from tests.contract.stories import Story


async def test_walks(db: Any, raw: Any, sent: Callable[[], int]) -> None:
    await Story(raw).chain()
    await db.get_meta("k")
    sent()
    for walk in (
        db.get_compression_tip,
        db.resolve_resume_session_id,
        db.get_compression_lineage,
        db.get_conversation_root,
        db.find_live_compression_child,
        db.resolve_session_id,
    ):
        for session_id in ("root", "tip", "nope"):
            await walk(session_id)
            assert sent() == 1
    row = await db.get_session("tip")
    sent()
    await db._is_compression_child_row(row)
    assert sent() == 1


async def test_repairs(db: Any, raw: Any, sent: Callable[[], int]) -> None:
    await Story(raw).chain()
    await db.create_session("p", "cli")
    sent()
    for session_id, statements in [("p", 1), ("nope", 1), ("root", 2)]:
        await db.reopen_orphaned_compression_session(session_id)
        assert sent() == statements
    await db.end_session("p", "compression")
    sent()
    await db.reopen_orphaned_compression_session("p")
    assert sent() == 4, "lock, look for a child, drop an expired lock, reopen"
    await db.finalize_orphaned_compression_sessions()
    assert sent() == 1
