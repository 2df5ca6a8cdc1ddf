"""Sessions that move to another store: gateway 10."""

from collections.abc import Callable
from typing import Any

import pytest

from hermes_orm import SessionDB
from tests.contract.stories import Story
from tests.contract.turns import assistant, tool, user
from tests.raw import Raw


async def fill(db: Any, raw: Raw, story: Story, session_id: str = "session-to-be-moved") -> str:
    await db.create_session("parent", "telegram")
    await db.create_session(
        session_id,
        "telegram",
        model="m",
        system_prompt="be brief",
        session_key="agent:work:telegram:dm:1",
        parent_session_id="parent",
    )
    await db.append_messages_batch(
        session_id, [user("a needle"), assistant("b", "c1"), tool("42", "c1"), user("undone")]
    )
    await db.append_message(session_id, "user", [{"type": "text", "text": "in parts ü"}])
    await db.append_message(session_id, "user", "nul \0 inside")
    await db.update_token_counts(session_id, input_tokens=5, model="m")
    await db.set_session_title(session_id, "T")
    await db.create_session("child", "cli", parent_session_id=session_id)
    change = "UPDATE messages SET {} WHERE session_id = ? AND content = ?"
    await raw.execute(change.format("active = 0, compacted = 1"), session_id, "a needle")
    await raw.execute(change.format("active = 0"), session_id, "undone")
    await raw.execute(change.format("tool_call_uid = 'u1'"), session_id, "42")
    await story.insert("system_prompts", {"hash": "pin", "prompt": '["tool"]'})
    await raw.execute("UPDATE sessions SET tool_names = 'pin' WHERE id = ?", session_id)
    return session_id


@pytest.fixture
async def target(make_location: Callable[..., str], request: Any) -> Any:
    """A store on the other database."""
    driver = "sqlite" if "postgresql" in request.node.callspec.id else "postgresql+asyncpg"
    async with SessionDB(make_location(driver)) as store:
        yield store


async def test_a_session_moves_with_all_its_rows(
    db: Any, raw: Raw, story: Story, target: Any
) -> None:
    moved = await fill(db, raw, story)
    assert await db.export_session_for_move("nobody") is None
    assert await db.count_messages_all(moved) == 6
    assert await db.count_messages_all("nobody") == 0
    payload = await db.export_session_for_move(moved)
    assert payload.keys() == {"session", "system_prompt", "tool_pin", "messages", "usage"}
    assert (payload["system_prompt"], payload["tool_pin"]) == ("be brief", '["tool"]')
    assert [message["active"] for message in payload["messages"]] == [0, 1, 1, 0, 1, 1]
    for store in (target, db):
        result = await store.import_moved_session(payload, profile_name="work")
        assert result == ("present" if store is db else "imported")
    before, after = await db.get_session(moved), await target.get_session(moved)
    assert after == {**before, "profile_name": "work", "parent_session_id": None}
    rows = [await store.get_messages(moved, include_inactive=True) for store in (db, target)]
    plain = [[{**row, "id": 0} for row in found] for found in rows]
    assert plain[0] == plain[1]
    assert await target.count_messages_all(moved) == 6
    again = await target.export_session_for_move(moved)
    assert again["usage"] == payload["usage"]
    assert (again["system_prompt"], again["tool_pin"]) == ("be brief", '["tool"]')
    for name in ("message_uid", "tool_call_uid", "tool_call_uids"):
        assert [m[name] for m in again["messages"]] == [m[name] for m in payload["messages"]]
    assert [hit["session_id"] for hit in await target.search_messages("parts")] == [moved]
    assert [hit["session_id"] for hit in await target.search_messages("needle")] == [moved]


async def test_moving_into_a_store_with_the_title(
    db: Any, raw: Raw, story: Story, target: Any
) -> None:  # gateway 11.34
    await fill(db, raw, story, "mv")
    payload = await db.export_session_for_move("mv")
    await target.create_session("other", "cli")
    await target.set_session_title("other", "T")
    await target.create_session("parent", "cli")
    payload["session"]["unknown column"] = 1
    del payload["session"]["archived"]
    assert await target.import_moved_session(payload, profile_name=" ") == "imported"
    arrived = await target.get_session("mv")
    assert (arrived["title"], arrived["parent_session_id"]) == ("T (mv)", "parent")
    assert arrived["archived"] == 0
    assert await target.import_moved_session(payload, profile_name="work") == "present"
    assert await db.delete_moved_session("mv") is True
    assert await db.get_session("mv") is None
    assert (await db.get_session("child"))["parent_session_id"] is None
    assert await db.delete_moved_session("mv") is False
    await db.update_token_counts("mv", input_tokens=5)
    assert await db.get_session("mv") is None


async def test_payloads_without_a_session(db: Any) -> None:
    for payload in ({}, {"session": None}, {"session": {"id": "x"}}):
        with pytest.raises(ValueError, match="payload"):
            await db.import_moved_session(payload, profile_name="work")
    minimal = {"session": {"id": "x", "source": "cli"}, "messages": [{"content": "hi"}]}
    assert await db.import_moved_session(minimal, profile_name="work") == "imported"
    assert (await db.get_messages("x"))[0]["role"] == "unknown"
