"""What SQLite lets other programs store affects its own row only: field report B2."""

from collections.abc import Callable
from typing import Any

import pytest

from hermes_orm import SessionDB
from tests.contract.stories import ids
from tests.raw import Raw

TIMES = ["started_at", "ended_at", "last_activity_at", "last_read_at"]


@pytest.fixture
def location(make_location: Callable[..., str]) -> str:
    return make_location("sqlite")


@pytest.mark.parametrize("column", TIMES)
async def test_text_in_place_of_a_time(
    db: SessionDB, raw: Raw, caplog: pytest.LogCaptureFixture, column: str
) -> None:
    for session_id in ("ok", "bad"):
        await db.create_session(session_id, "cli", cwd="/w")
        await db.append_message(session_id, "user", "hello")
        await db.set_session_read(session_id)
    await raw.execute(f"UPDATE sessions SET {column} = 'not-a-time' WHERE id = 'bad'")
    rows: list[Any] = [await db.get_session("bad"), await db.get_session_rich_row("bad")]
    listed = await db.list_sessions_rich()
    assert sorted(ids(listed)) == ["bad", "ok"]
    rows += [row for row in listed if row["id"] == "bad"]
    rows += [row for row in await db.search_sessions() if row["id"] == "bad"]
    assert [row[column] for row in rows] == [None] * 4
    warned = {record.getMessage() for record in caplog.records}
    assert f"sessions: {column} of row 'bad' is no time and is ignored" in warned
    assert sorted(ids(await db.list_sessions_rich(order_by_last_active=True))) == ["bad", "ok"]
    activity: Any = await db.get_session_activity("bad")
    assert activity["seconds_since_activity"] is None
    assert await db.session_count(exclude_children=True) == 2
    assert len(await db.distinct_session_cwds()) == 1
    await db.get_compression_tip("bad")
    await db.resolve_resume_session_id("bad")
    await db.finalize_orphaned_compression_sessions()


@pytest.mark.parametrize(
    ("column", "value"),
    [("title", b"\xff"), ("cwd", b"/w\xff"), ("model_config", b"{}"), ("source", b"cli")],
)
async def test_bytes_in_place_of_text(db: SessionDB, raw: Raw, column: str, value: bytes) -> None:
    for session_id in ("ok", "bad"):
        await db.create_session(session_id, "cli", cwd="/w")
    await raw.execute(f"UPDATE sessions SET {column} = ? WHERE id = 'bad'", value)
    for by_activity in (False, True):
        rows = await db.list_sessions_rich(order_by_last_active=by_activity)
        assert sorted(ids(rows)) == ["bad", "ok"]
    assert await db.get_session("bad") is not None
    assert await db.session_count(exclude_children=True) == 2
    await db.session_count_by_source()
    await db.distinct_session_cwds()
    await db.patch_session_model_config("bad", {"k": 1})
    await db.set_session_title("bad", "T")
    assert await db.get_session_title("bad") == "T"


async def test_text_in_place_of_a_time_of_a_peer(db: SessionDB, raw: Raw) -> None:
    peer: dict[str, Any] = {"source": "tg", "chat_id": "c", "chat_type": "dm"}
    for session_id in ("ok", "bad", "orphan"):
        key = None if session_id == "orphan" else "k"
        await db.record_gateway_session_peer(session_id, session_key="k", **peer)
        await raw.execute("UPDATE sessions SET session_key = ? WHERE id = ?", key, session_id)
        await db.append_message(session_id, "user", "hello")
    await db.promote_to_session_reset("bad")
    times = "ended_at = 'soon', last_activity_at = 'soon', started_at = 'soon'"
    await raw.execute(f"UPDATE sessions SET {times} WHERE id = 'bad'")
    await raw.execute("UPDATE sessions SET started_at = 'soon' WHERE id = 'orphan'")
    found = await db.find_latest_gateway_session_for_peer(session_key="k", **peer)
    assert found is not None and found["id"] == "ok"
    assert await db.find_session_by_origin(platform="tg", chat_id="c") == "ok"
    assert len(await db.list_gateway_sessions(active_only=False)) == 1
    (record,) = await db.find_orphaned_gateway_sessions()
    assert record["orphan_id"] == "orphan" and type(record["started_at"]) is float
    assert await db.sweep_orphaned_sessions(max_idle_seconds=1, sources=["tg"]) == []
    assert await db.prune_never_active_keyed_sessions(older_than_days=0) == (0, 0, 0)
