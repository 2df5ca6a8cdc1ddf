"""Creating and completing sessions."""

from typing import Any

import pytest


async def test_second_call_fills_only_what_is_missing(db: Any, clock: Any) -> None:
    await db.create_session("s", "cli")
    started = clock()
    clock.advance(5)
    assert await db.create_session("s", "telegram", model="m", user_id="u", cwd="/w") == "s"
    row = await db.get_session("s")
    assert (row["source"], row["model"], row["user_id"], row["cwd"]) == ("cli", "m", "u", "/w")
    assert row["started_at"] == started
