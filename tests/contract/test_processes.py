"""Several processes write to one database at the same time."""

import asyncio
import json
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("sessions", "count"),
    [(["s", "s", "s", "s"], 200), (["s", "t", "u", "v"], 50)],
    ids=["one session", "a session each"],
)
async def test_appends_of_four_processes_are_complete_and_in_order(
    location: str, db: Any, sessions: list[str], count: int
) -> None:
    ids = await at_once(
        "appending",
        [(location, session, str(name), str(count)) for name, session in enumerate(sessions)],
    )
    assert await db.message_count() == 4 * count
    for session_id in set(sessions):
        names = [str(n) for n, session in enumerate(sessions) if session == session_id]
        rows = await db.get_messages(session_id)
        assert len({row["id"] for row in rows}) == len(rows) == count * len(names)
        for name in names:
            own = [(row["id"], row["content"]) for row in rows if row["content"].split()[0] == name]
            assert own == [(id, f"{name} {number}") for number, id in enumerate(ids[int(name)])]
            assert len(own) == count
        session = await db.get_session(session_id)
        assert session["message_count"] == count * len(names)
        assert session["tool_call_count"] == count // 10 * len(names)


async def test_one_of_eight_processes_gets_a_title(location: str, db: Any) -> None:
    outcomes = await at_once("titling", [(location, str(name), "5") for name in range(8)])
    for number in range(5):
        owner = await db.get_session_by_title(f"Title {number}")
        of_title = {f"{name}-{number}": outcome[number] for name, outcome in enumerate(outcomes)}
        assert of_title.pop(owner["id"]) is True
        for error, text in of_title.values():
            assert error == "ValueError"
            assert f"'Title {number}' is already in use by session {owner['id']!r}" in text


async def test_prune_that_is_killed_can_be_run_again(location: str, db: Any, raw: Any) -> None:
    for number in range(20):
        await db.create_session(f"s{number}", "cli", system_prompt=f"prompt {number}")
        await db.append_message(f"s{number}", "user", f"needle {number}")
        await db.end_session(f"s{number}", "done")
    process = await start("pruning", location)
    assert process.stdout is not None
    assert await process.stdout.readline() == b"ready\n"
    process.kill()
    await process.wait()
    assert len(await db.list_prune_candidates()) == 20
    assert len(await db.search_messages("needle", limit=50)) == 20
    assert await db.prune_sessions(older_than_days=None) == 20
    assert await db.search_messages("needle") == []
    for table in ("sessions", "messages", "system_prompts", "hermes_session_recency"):
        assert await raw.fetch(f"SELECT count(*) FROM {table}") == [(0,)]


async def test_a_forked_process_leaves_the_connections_of_its_parent_alone(location: str) -> None:
    # N11; the script holds a transaction open meanwhile
    process = await start("forking", location)
    output, _ = await asyncio.wait_for(process.communicate(), 60)
    child, parent = map(json.loads, output.splitlines())
    for name in ("inherited", "queued", "unit"):
        assert "opened by the parent process" in child[name]
    assert child["closed"] is None
    if location.startswith("postgresql"):
        assert child["unopened"] == "committed"  # a store that was not open opens its own
    else:
        assert "close the store before the fork" in child["unopened"]
    assert parent == ["open", "works", "after"]


async def at_once(module: str, calls: list[tuple[str, ...]]) -> list[Any]:
    """Run a process of `tests.<module>` for each call, all at once; return their answers."""
    processes = [await start(module, *arguments) for arguments in calls]
    for process in processes:
        assert process.stdout is not None
        await process.stdout.readline()  # "ready", or nothing when it failed
    done = await asyncio.gather(*(process.communicate(b"go\n") for process in processes))
    assert not any(process.returncode for process in processes), done
    return [json.loads(answer) for answer, _ in done]


async def start(module: str, *arguments: str) -> Process:
    command = [sys.executable, "-m", f"tests.{module}", *arguments]
    return await asyncio.create_subprocess_exec(
        *command, cwd=ROOT, stdin=PIPE, stdout=PIPE, stderr=PIPE
    )
