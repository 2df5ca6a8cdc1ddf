"""Models, billing routes and prompts of a session: what each change takes along."""

import asyncio
from typing import Any

import pytest

from hermes_orm.errors import ReadOnlyStoreError
from hermes_orm.repositories.sessions.prompts import prompt_hash


async def prompts(raw: Any) -> list[str]:
    return [prompt for (prompt,) in await raw.fetch("SELECT prompt FROM system_prompts ORDER BY 1")]


async def prompt_of(db: Any, session_id: str) -> Any:
    return (await db.get_session(session_id))["system_prompt"]


# Example 17: update_session_billing_route


async def test_route_is_stored_and_the_prompt_dropped(db: Any, raw: Any) -> None:
    await db.create_session("s", "cli", system_prompt="P", model_config={"a": 1}, model="x")
    await db.update_session_billing_route("s", provider="p", base_url="u", billing_mode="m")
    await db.update_system_prompt("s", "Q")
    await db.update_session_billing_route("s", provider="q", base_url=None)
    row = await db.get_session("s")
    assert (row["billing_provider"], row["billing_base_url"]) == ("q", None)
    assert (row["billing_mode"], row["system_prompt"]) == ("m", None)
    assert (row["model_config"], row["model"]) == ('{"a": 1}', "x")
    assert await prompts(raw) == []
    await db.update_session_billing_route("s", provider=None, base_url="", billing_mode="")
    row = await db.get_session("s")
    assert (row["billing_provider"], row["billing_base_url"], row["billing_mode"]) == (None, "", "")


async def test_text_that_cannot_be_stored_is_replaced(db: Any, session: str) -> None:
    await db.update_session_model(session, "m\0\ud800")
    await db.update_session_billing_route(
        session, provider="p\0", base_url="u\ud800", billing_mode="m\0"
    )
    await db.update_system_prompt(session, "P\0\udfff")
    await db.update_session_meta(session, '{"k": "\0"}')
    row = await db.get_session(session)
    assert row["model"] == "m\ufffd\ufffd" and row["system_prompt"] == "P\ufffd\ufffd"
    assert (row["billing_provider"], row["billing_base_url"]) == ("p\ufffd", "u\ufffd")
    assert (row["billing_mode"], row["model_config"]) == ("m\ufffd", '{"k": "\ufffd"}')


# Example 13: update_system_prompt


async def test_prompts_are_stored_once_and_leave_with_the_last_session(db: Any, raw: Any) -> None:
    for session_id in "ab":
        await db.create_session(session_id, "cli", system_prompt="P")
    assert await prompts(raw) == ["P"]
    await db.update_system_prompt("a", "Q")
    assert await prompts(raw) == ["P", "Q"]
    await db.update_system_prompt("b", None)
    assert await prompts(raw) == ["Q"]
    await db.create_session("a", "cli", system_prompt="Z")
    assert await prompts(raw) == ["Q"]
    assert (await prompt_of(db, "a"), await prompt_of(db, "b")) == ("Q", None)
    await db.update_system_prompt("a", "Q")
    await db.update_system_prompt("b", "")
    assert await prompts(raw) == ["", "Q"]
    assert (await prompt_of(db, "a"), await prompt_of(db, "b")) == ("Q", "")


async def test_new_prompt_takes_the_place_of_an_inline_one(db: Any, raw: Any, session: str) -> None:
    for prompt in ("new", None):
        await raw.execute("UPDATE sessions SET system_prompt = 'old', system_prompt_hash = NULL")
        await db.update_system_prompt(session, prompt)
        assert await prompt_of(db, session) == prompt
        assert await raw.fetch("SELECT system_prompt FROM sessions") == [(None,)]


@pytest.mark.parametrize(
    "change",
    [
        lambda db: db.update_session_model("s", "m"),
        lambda db: db.update_session_runtime_lock("s"),
        lambda db: db.update_session_billing_route("s", provider="p", base_url="u"),
    ],
)
async def test_a_new_route_leaves_neither_prompt(db: Any, raw: Any, change: Any) -> None:
    await db.create_session("s", "cli", system_prompt="P")
    await db.create_session("t", "cli", system_prompt="P")
    await raw.execute("UPDATE sessions SET system_prompt = 'old' WHERE id = 's'")
    await change(db)
    assert (await prompt_of(db, "s"), await prompt_of(db, "t")) == (None, "P")
    assert await prompts(raw) == ["P"]
    await db.update_system_prompt("t", None)
    assert await prompts(raw) == []


# Example 96


async def test_text_that_only_a_tool_list_names_is_kept(db: Any, raw: Any) -> None:
    await db.create_session("a", "cli", system_prompt="P")
    await db.create_session("b", "cli", system_prompt="P")
    digest = prompt_hash("P")
    await raw.execute("UPDATE sessions SET tool_names = ? WHERE id = 'a'", digest)
    await db.update_system_prompt("a", None)
    await db.update_system_prompt("b", None)
    assert await prompts(raw) == ["P"]
    await raw.execute("UPDATE sessions SET tool_names = NULL")
    await db.update_system_prompt("b", "P")
    await db.update_session_model("b", "m")
    assert await prompts(raw) == []


# Example 84


async def test_prompt_is_stored_while_its_last_session_leaves_it(
    db: Any, open_store: Any, raw: Any
) -> None:
    other = open_store()
    for session_id in "ab":
        await db.create_session(session_id, "cli")
    for _ in range(20):
        await other.update_system_prompt("b", "P")
        await db.update_system_prompt("a", None)
        await asyncio.gather(
            other.update_system_prompt("b", None), db.update_system_prompt("a", "P")
        )
        assert (await prompt_of(db, "a"), await prompt_of(db, "b")) == ("P", None)
        assert await prompts(raw) == ["P"]


async def test_sessions_that_change_prompts_all_the_time(
    db: Any, open_store: Any, raw: Any
) -> None:
    stores = [db, open_store()]
    for number in range(4):
        await db.create_session(f"s{number}", "cli")

    async def change(number: int) -> None:
        store, key = stores[number % 2], f"s{number}"
        for prompt in ("P", "Q", None, "P", "Q") * 4:
            await store.update_system_prompt(key, prompt)
            assert await prompt_of(store, key) == prompt
        await store.update_session_model(key, "m")

    await asyncio.gather(*(change(number) for number in range(4)))
    # A sweep leaves a prompt alone that another session is just storing or leaving.
    for number in range(4):
        for prompt in ("P", "Q", None):
            await db.update_system_prompt(f"s{number}", prompt)
    assert await prompts(raw) == []


async def test_read_only_store_refuses(db: Any, open_store: Any, session: str) -> None:
    store = open_store(read_only=True)
    for change in (
        store.update_system_prompt(session, "P"),
        store.update_session_meta(session, "{}"),
        store.update_session_model(session, "m"),
        store.update_session_runtime_lock(session),
        store.update_session_billing_route(session, provider="p", base_url="u"),
        store.patch_session_model_config(session, None),
        store.update_session_cwd(session, "/w"),
        store.backfill_repo_roots({}),
    ):
        with pytest.raises(ReadOnlyStoreError):
            await change
    assert await store.get_session_model_config_value(session, "k", 1) == 1
    assert await store.distinct_session_cwds() == []
