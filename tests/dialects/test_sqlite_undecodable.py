"""Text that is no UTF-8 affects its own row only: field report A3."""

from collections.abc import Callable
from typing import Any

import pytest

from hermes_orm import SessionDB
from tests.contract.stories import ids
from tests.raw import Raw

CUT = "CAST(x'6869e29c' AS TEXT)"
READ = "hi\ufffd"


@pytest.fixture
def location(make_location: Callable[..., str]) -> str:
    return make_location("sqlite")


@pytest.fixture
async def two(db: SessionDB) -> None:
    for session_id in ("ok", "bad"):
        await db.create_session(session_id, "cli", system_prompt=session_id, cwd="/w")
        await db.append_message(session_id, "user", "hello")


def warned(caplog: pytest.LogCaptureFixture) -> set[str]:
    texts = {record.getMessage() for record in caplog.records}
    assert not any("hi" in text for text in texts), "content is never shown"
    return {text.partition(" is no UTF-8")[0] for text in texts if "no UTF-8" in text}


@pytest.mark.usefixtures("two")
@pytest.mark.parametrize("column", ["title", "cwd", "model_config", "end_reason", "display_name"])
async def test_cell_of_a_session(db: SessionDB, raw: Raw, caplog: Any, column: str) -> None:
    await raw.execute(f"UPDATE sessions SET {column} = {CUT} WHERE id = 'bad'")
    row: Any = await db.get_session("bad")
    assert row[column] == READ and type(row[column]) is str
    for by_activity in (False, True):
        rows: Any = await db.list_sessions_rich(order_by_last_active=by_activity)
        assert {row["id"]: row[column] for row in rows}["bad"] == READ
        assert sorted(ids(rows)) == ["bad", "ok"]
    assert warned(caplog) == {f"sessions: {column} of row 'bad'"}
    caplog.clear()
    assert await db.get_session("ok") is not None
    assert await db.session_count(cwd_prefix="/w", exclude_children=True) == 1 + (column != "cwd")
    await db.distinct_session_cwds()
    await db.set_session_title("ok", "T")
    await db.patch_session_model_config("bad", {"k": 1})
    await db.update_session_model("bad", "m")
    assert await db.get_session_title("bad") == (READ if column == "title" else None)


@pytest.mark.usefixtures("two")
async def test_stored_prompt(db: SessionDB, raw: Raw, caplog: Any) -> None:
    await raw.execute(f"UPDATE system_prompts SET prompt = {CUT} WHERE prompt = 'bad'")
    rows = await db.list_sessions_rich()
    assert {row["id"]: row.get("system_prompt") for row in rows} == {"ok": "ok", "bad": READ}
    assert len(warned(caplog)) == 1


async def test_message_among_many(db: SessionDB, raw: Raw, caplog: Any) -> None:
    session = await db.create_session("s", "cli")
    turns = [{"role": "user", "content": f"turn {number}"} for number in range(350)]
    await db.append_messages_batch(session, turns)
    await raw.execute(f"UPDATE messages SET content = {CUT} WHERE id = 222")
    expected = [turn["content"] for turn in turns]
    expected[221] = READ
    for messages in (
        await db.get_messages(session),
        await db.get_messages(session, limit=300, offset=0)
        + await db.get_messages(session, limit=300, offset=300),
        await db.get_messages_as_conversation(session),
    ):
        assert [message["content"] for message in messages] == expected
    assert warned(caplog) == {"messages: content of row 222"}
    assert len(await db.list_sessions_rich()) == 1
    assert await db.search_messages("turn", limit=3)


@pytest.mark.usefixtures("two")
async def test_a_preview(db: SessionDB, raw: Raw) -> None:
    await raw.execute(f"UPDATE messages SET content = {CUT} WHERE session_id = 'bad'")
    previews = {row["id"]: row["preview"] for row in await db.list_sessions_rich()}
    assert previews == {"ok": "hello", "bad": READ}
