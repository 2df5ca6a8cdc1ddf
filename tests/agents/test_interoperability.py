"""Other programs' stores and this one take turns on the same database, and lose nothing.

The programs are run as they are published, in environments of their own, through their `SessionDB`.
"""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hermes_orm import SessionDB, migrations
from hermes_orm.dialects.inspection import findings_of
from hermes_orm.location import locate
from tests.foreign import Environment

PARTS = [
    {"type": "text", "text": "Is this rosemary? 迷迭香"},
    {"type": "image_url", "image_url": {}},
]
CALLS = [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}]

VISIT = """
import asyncio, importlib, inspect, json, sys
from pathlib import Path

module, location, own = sys.argv[1:4]
calls, parts = map(json.loads, sys.argv[4:])

async def main():
    store = importlib.import_module(module).SessionDB
    db = store(location if "://" in location else Path(location))

    async def call(name, *args, **kwargs):
        result = getattr(db, name)(*args, **kwargs)
        return await result if inspect.isawaitable(result) else result

    if own:
        await call("create_session", session_id=own, source="cli", model="acme/alpha-1")
        await call("append_message", own, "user", f"Water the tomatoes of {own}.")
        await call("append_message", own, "assistant", None, tool_calls=calls)
        await call("append_message", own, "tool", "dry", tool_name="look", tool_call_id="c1")
        await call("append_message", own, "user", parts)
        await call("set_session_title", own, f"Title of {own}")
    listed = await call("list_sessions_rich", limit=100)
    print(json.dumps({
        "titles": {row["id"]: row["title"] for row in listed},
        "messages": {
            row["id"]: [[m["role"], m["content"]] for m in await call("get_messages", row["id"])]
            for row in listed
        },
        "found": sorted({hit["session_id"] for hit in await call("search_messages", "tomatoes")}),
    }))
    await call("close")

asyncio.run(main())
"""


class Program:
    """A published program that visits a store."""

    def __init__(self, environment: Environment, module: str, home: Path) -> None:
        self._environment = environment
        self._module = module
        self._home = home

    async def visit(self, location: str, own: str = "") -> dict[str, Any]:
        """Have the program write a session of its own, if named, and tell what it reads."""
        arguments = [self._module, location, own, json.dumps(CALLS), json.dumps(PARTS)]
        variables = {"HERMES_HOME": str(self._home)}
        printed = await asyncio.to_thread(
            self._environment.run, "-c", VISIT, *arguments, env=variables
        )
        seen: dict[str, Any] = json.loads(printed.splitlines()[-1])
        return seen


async def write(location: str, own: str) -> None:
    """Write with this store what the programs write with theirs."""
    async with SessionDB(location) as db:
        await db.create_session(own, "cli", model="acme/alpha-1")
        await db.append_message(own, "user", f"Water the tomatoes of {own}.")
        await db.append_message(own, "assistant", None, tool_calls=CALLS)
        await db.append_message(own, "tool", "dry", tool_name="look", tool_call_id="c1")
        await db.append_message(own, "user", PARTS)
        await db.set_session_title(own, f"Title of {own}")


async def read(location: str) -> dict[str, Any]:
    """Tell what this store reads, in the words of the programs."""
    async with SessionDB(location) as db:
        listed = await db.list_sessions_rich(limit=100)
        messages = {row["id"]: await db.get_messages(row["id"]) for row in listed}
        hits = await db.search_messages("tomatoes")
        return {
            "titles": {row["id"]: row["title"] for row in listed},
            "messages": {
                key: [[row["role"], row["content"]] for row in rows]
                for key, rows in messages.items()
            },
            "found": sorted({hit["session_id"] for hit in hits}),
        }


def expected(*own: str) -> dict[str, Any]:
    """Return what everybody must read."""
    return {
        "titles": {name: f"Title of {name}" for name in own},
        "messages": {
            name: [
                ["user", f"Water the tomatoes of {name}."],
                ["assistant", None],
                ["tool", "dry"],
                ["user", PARTS],
            ]
            for name in own
        },
        "found": sorted(own),
    }


async def sound(location: str) -> bool:
    """Tell whether nothing is wrong with a database whose search index is complete."""
    async with SessionDB(location) as db:
        while await db.fts_rebuild_step():
            pass
    return await findings_of(locate(location), lambda step: None) == []


async def take_turns(program: Program, location: str, revision: str) -> None:
    """The program creates the file; then both write in turn, it at the revision that it knows."""
    assert await program.visit(location, "theirs") == expected("theirs")
    assert await read(location) == expected("theirs")
    await write(location, "ours")
    assert await read(location) == expected("theirs", "ours")
    assert await sound(location)
    await migrations.downgrade(location, revision, force=True)  # durable ids are lost
    assert await program.visit(location) == expected("theirs", "ours")
    assert await program.visit(location, "late") == expected("theirs", "ours", "late")
    assert await read(location) == expected("theirs", "ours", "late")
    assert await sound(location)


async def test_async_agent_and_this_store_take_turns(
    async_agent: Environment, tmp_path: Path
) -> None:
    program = Program(async_agent, "hermes_state", tmp_path)
    await take_turns(program, str(tmp_path / "state.db"), "0025")


async def test_upstream_agent_and_this_store_take_turns(
    upstream_agent: Environment, tmp_path: Path
) -> None:
    program = Program(upstream_agent, "hermes_state", tmp_path)
    await take_turns(program, str(tmp_path / "state.db"), "0022")


async def test_an_older_agent_on_a_newer_file_does_no_lasting_harm(
    async_agent: Environment, tmp_path: Path
) -> None:
    """It puts its own triggers into the file; the next opening by this store replaces them."""
    location = str(tmp_path / "state.db")
    program = Program(async_agent, "hermes_state", tmp_path)
    await write(location, "ours")
    assert await program.visit(location, "theirs") == expected("theirs", "ours")
    assert await read(location) == expected("theirs", "ours")
    await write(location, "late")
    assert await read(location) == expected("theirs", "ours", "late")
    assert await sound(location)


async def test_database_of_the_existing_postgresql_store_is_adopted(
    existing_postgres_store: Environment, make_location: Callable[..., str], tmp_path: Path
) -> None:
    location = make_location("postgresql+psycopg", empty=True)
    program = Program(existing_postgres_store, "hermes_state_postgres", tmp_path)
    assert await program.visit(location, "theirs") == expected("theirs")
    assert await read(location) == expected("theirs")
    await write(location, "ours")
    assert await read(location) == expected("theirs", "ours")
    assert await sound(location)
    with pytest.raises(pytest.fail.Exception, match=r"newer|unsupported|version"):
        await program.visit(location, "late")
    assert await read(location) == expected("theirs", "ours")
