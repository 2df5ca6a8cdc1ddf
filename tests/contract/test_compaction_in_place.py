"""Compressing a session in place: messages.md sections 12 and 19."""

import asyncio
import json
import sqlite3
import time
from typing import Any

import pytest

from hermes_orm.errors import CompressionSessionClosedError, SessionCompressionInProgressError
from tests.contract.turns import assistant, contents, tool, user

STATES = "SELECT content, active, compacted FROM messages WHERE session_id = 's' ORDER BY id"


async def states(raw: Any) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in await raw.fetch(STATES)]


async def counters(db: Any) -> tuple[int, int]:
    row = await db.get_session("s")
    return row["message_count"], row["tool_call_count"]


async def everything(db: Any, raw: Any) -> Any:
    return await db.get_session("s"), await states(raw)


@pytest.fixture
async def story(db: Any, session: str) -> int:
    """u0 a1 u2 a3 in `s`, two calls; the watermark after them."""
    history = [user("u0"), assistant("a1", "c1"), user("u2"), assistant("a3", "c3")]
    await db.append_messages_batch(session, history)
    watermark: int = await db.get_active_message_watermark(session)
    return watermark


async def test_what_came_later_follows_the_summary(db: Any, raw: Any, story: int) -> None:
    await db.patch_session_model_config("s", {"k": 1, "z": 2})
    late = user("late", observed=True, platform_message_id="P", timestamp=5.0, display_kind="d")
    late["display_metadata"] = {"m": [1]}
    await db.append_messages_batch("s", [late, assistant("late2", "c4", "c5", api_content="ä")])
    originals = (await db.get_messages("s"))[4:]
    summary = [user("sum"), assistant("ok", "c6")]
    stored = await db.archive_and_compact(
        "s", summary, watermark=story, model_config_patch={"k": None, "n": 5}
    )
    assert stored == 4
    live = await db.get_messages("s")
    assert contents(live) == ["sum", "ok", "late", "late2"]
    ids = [row["id"] for row in await db.get_messages("s", include_inactive=True)]
    assert ids == sorted(ids)
    for original, copy in zip(originals, live[2:], strict=True):
        assert copy == {**original, "id": copy["id"]}
    archived = ["u0", "a1", "u2", "a3", "late", "late2"]
    live_states = [(content, 1, 0) for content in contents(live)]
    assert await states(raw) == [(content, 0, 1) for content in archived] + live_states
    assert await counters(db) == (4, 3)
    assert json.loads((await db.get_session("s"))["model_config"]) == {"z": 2, "n": 5}
    columns = "message_uid, _compressed_summary, token_count, timestamp, display_metadata"
    late_rows = await raw.fetch(
        f"SELECT {columns} FROM messages WHERE content = 'late2' ORDER BY id"
    )
    assert tuple(late_rows[0]) == tuple(late_rows[1])


async def test_without_watermark_everything_is_archived(db: Any, raw: Any, story: int) -> None:
    await db.append_message("s", "user", "late")
    assert await db.archive_and_compact("s", [user("sum"), assistant("ok")]) == 2
    assert contents(await db.get_messages("s")) == ["sum", "ok"]
    assert await counters(db) == (2, 0)
    assert await db.archive_and_compact("s", []) == 0
    assert await db.get_messages("s") == []
    assert await counters(db) == (0, 0)
    assert {state[1:] for state in await states(raw)} == {(0, 1)}


@pytest.mark.parametrize("watermark", [0, -(2**70), "0"])
async def test_watermark_before_all_keeps_all(db: Any, story: int, watermark: Any) -> None:
    assert await db.archive_and_compact("s", [user("sum")], watermark=watermark) == 5
    assert contents(await db.get_messages("s")) == ["sum", "u0", "a1", "u2", "a3"]
    assert await counters(db) == (5, 2)


async def test_copies_are_found_once_more_and_many_are_copied(db: Any, story: int) -> None:
    late = [tool(f"needle {number}", "c") for number in range(700)]
    await db.append_messages_batch("s", late)
    assert await db.archive_and_compact("s", [user("sum")], watermark=story) == 701
    live = await db.get_messages("s")
    assert contents(live)[1:] == contents(late)
    found = await db.search_messages('"needle 699"')
    assert live[-1]["id"] in {hit["id"] for hit in found}
    before = await db.get_session_rich_row("s")
    await db.archive_and_compact("s", [], watermark=0)
    assert (await db.get_session_rich_row("s"))["last_active"] == before["last_active"]


async def test_undone_rows_stay_undone(db: Any, raw: Any, session: str) -> None:
    ids = [await db.append_message(session, "user", text) for text in ("m0", "undo")]
    await db.rewind_to_message(session, ids[1])
    await db.archive_and_compact(session, [user("sum")], watermark=0)
    expected = [("m0", 0, 1), ("undo", 0, 0), ("sum", 1, 0), ("m0", 1, 0)]
    assert await states(raw) == expected


async def test_lock_of_the_caller_must_be_live(db: Any, raw: Any, story: int) -> None:
    async def refused(holder: str) -> None:
        before = await everything(db, raw)
        began = time.monotonic()
        with pytest.raises(
            SessionCompressionInProgressError, match="Compression lease lost for session 's'"
        ):
            await db.archive_and_compact(
                "s", [user("sum")], model_config_patch={"k": 1}, lock_holder=holder
            )
        assert time.monotonic() - began < 3
        assert await everything(db, raw) == before

    await refused("A")
    await refused("")
    await db.try_acquire_compression_lock("s", "B")
    await refused("A")
    assert await db.archive_and_compact("s", [user("1")], lock_holder="B") == 1
    assert await db.get_compression_lock_holder("s") == "B"
    assert await db.archive_and_compact("s", [user("2")], lock_holder=None) == 1
    await raw.execute("UPDATE compression_locks SET expires_at = ?", time.time() - 1)
    await refused("B")


async def test_closed_and_unknown_sessions_are_refused(db: Any, raw: Any, story: int) -> None:
    for unknown in ("nope", "n\x00", None):
        for messages in ([user("x")], []):
            with pytest.raises(RuntimeError, match="Session not found"):
                await db.archive_and_compact(unknown, messages)
    await db.end_session("s", "compression")
    before = await everything(db, raw)
    with pytest.raises(CompressionSessionClosedError) as caught:
        await db.archive_and_compact("s", [], watermark=0)
    assert caught.value.session_id == "s"
    assert await everything(db, raw) == before
    await db.reopen_session("s")
    await db.end_session("s", "user_exit")
    assert await db.archive_and_compact("s", [user("x")]) == 1


async def test_bad_arguments_change_nothing(db: Any, raw: Any, story: int) -> None:
    before = await everything(db, raw)
    for arguments, error in (
        ({"compacted_messages": [user("x"), 5]}, TypeError),
        ({"watermark": "soon"}, ValueError),
        ({"model_config_patch": {"k": object()}}, TypeError),
    ):
        with pytest.raises(error):
            await db.archive_and_compact("s", **{"compacted_messages": [user("x")], **arguments})
    assert await everything(db, raw) == before


async def test_failure_in_the_middle_changes_nothing(db: Any, raw: Any, story: int) -> None:
    if raw.is_postgres:
        await raw.execute("ALTER TABLE messages ADD CHECK (compacted = 0)")
    else:
        await raw.execute(
            "CREATE TRIGGER refuse BEFORE UPDATE OF compacted ON messages "
            "BEGIN SELECT RAISE(ABORT, 'refused'); END"
        )
    before = await everything(db, raw)
    with pytest.raises(sqlite3.IntegrityError):
        await db.archive_and_compact("s", [user("x")], {"k": 1}, watermark=0)
    assert await everything(db, raw) == before


async def test_config_that_is_no_object_is_replaced(db: Any, raw: Any, story: int) -> None:
    await raw.execute("UPDATE sessions SET model_config = '[1'")
    await db.archive_and_compact("s", [], {"k": 1})
    assert json.loads((await db.get_session("s"))["model_config"]) == {"k": 1}


async def test_concurrent_appends_stay_live(db: Any, open_store: Any, story: int) -> None:
    writer = open_store()
    await writer.get_session("s")

    async def append(number: int) -> None:
        await asyncio.sleep(number * 0.001)
        await writer.append_message("s", "user", f"late {number}")

    async def compact() -> None:
        for _ in range(5):
            await db.archive_and_compact("s", [user("sum")], watermark=story)

    await asyncio.gather(compact(), *(append(number) for number in range(20)))
    live = contents(await db.get_messages("s"))
    assert {text for text in live if text != "sum"} == {f"late {number}" for number in range(20)}
    assert (await counters(db))[0] == len(live)
