"""System prompts are stored once and leave with their last session: sessions.md section 4."""

import asyncio
import hashlib
import sqlite3
from typing import Any

import pytest
from sqlalchemy import exc

from hermes_orm.database import Transaction
from hermes_orm.repositories.sessions.prompts import PromptRepository, prompt_hash


async def prompts(raw: Any) -> list[str]:
    return [prompt for (prompt,) in await raw.fetch("SELECT prompt FROM system_prompts ORDER BY 1")]


async def prompt_of(db: Any, session_id: str) -> Any:
    return (await db.get_session(session_id))["system_prompt"]


async def sweep(db: Any, prompt: str) -> None:
    def work(tx: Transaction) -> None:
        PromptRepository(tx).sweep(prompt_hash(prompt))

    await db.database.write(work)


async def test_same_prompt_is_stored_once(db: Any, raw: Any) -> None:
    for session_id, prompt in [("a", "P"), ("b", "P"), ("c", ""), ("d", None), ("e", "ü")]:
        await db.create_session(session_id, "cli", system_prompt=prompt)
        assert await prompt_of(db, session_id) == prompt
    assert sorted(await prompts(raw)) == ["", "P", "ü"]
    row = await db.get_session("e")
    assert row["system_prompt_hash"] == hashlib.sha256("ü".encode()).hexdigest()


async def test_prompt_is_filled_and_then_kept(db: Any, raw: Any) -> None:
    await db.create_session("a", "cli")
    for prompt in ("P", "Z", ""):
        await db.create_session("a", "cli", system_prompt=prompt)
        assert await prompt_of(db, "a") == "P"
        assert await prompts(raw) == ["P"]


async def test_failed_creation_leaves_no_prompt(db: Any, raw: Any) -> None:
    await db.create_session("a", "cli")
    await db.create_session("b", "cli", parent_session_id="a")
    for key, parent in [("c", "ghost"), ("a", "b")]:
        with pytest.raises((sqlite3.IntegrityError, exc.IntegrityError, ValueError)):
            await db.create_session(key, "cli", parent_session_id=parent, system_prompt="P")
        assert await prompts(raw) == []


async def test_sweep_spares_what_is_named(db: Any, raw: Any) -> None:
    await db.create_session("a", "cli", system_prompt="P")
    for prompt in ("tools", "unused", "other"):
        await raw.execute("INSERT INTO system_prompts VALUES (?, ?)", prompt_hash(prompt), prompt)
    await raw.execute("UPDATE sessions SET tool_names = ?", prompt_hash("tools"))
    for prompt in ("P", "tools", "unused", "nope"):
        await sweep(db, prompt)
    assert await prompts(raw) == ["P", "other", "tools"]


async def test_prompt_that_is_being_swept_can_be_stored(db: Any, open_store: Any, raw: Any) -> None:
    other = open_store()
    for number in range(20):
        await raw.execute("INSERT INTO system_prompts VALUES (?, 'P')", prompt_hash("P"))
        await asyncio.gather(
            sweep(other, "P"),
            db.create_session(f"s{number}", "cli", system_prompt="P"),
            sweep(other, "P"),
        )
        assert await prompt_of(db, f"s{number}") == "P"
        await raw.execute("UPDATE sessions SET system_prompt_hash = NULL")
        await sweep(other, "P")
        assert await prompts(raw) == []


async def test_many_sessions_store_one_prompt(db: Any, open_store: Any, raw: Any) -> None:
    stores = [db, open_store()]
    await asyncio.gather(
        *(stores[n % 2].create_session(f"s{n}", "cli", system_prompt="P") for n in range(20))
    )
    assert await prompts(raw) == ["P"]
    assert await raw.fetch("SELECT count(*) FROM sessions WHERE system_prompt_hash <> ''") == [
        (20,)
    ]
