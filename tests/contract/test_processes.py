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
    ids = await append_at_once(location, sessions, count)
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


async def append_at_once(location: str, sessions: list[str], count: int) -> list[list[int]]:
    """Run a process for each session given, all writing at once; return the row ids of each."""
    processes = [
        await start(location, session_id, str(number), str(count))
        for number, session_id in enumerate(sessions)
    ]
    for process in processes:
        assert process.stdout is not None
        await process.stdout.readline()  # "ready", or nothing when it failed
    done = await asyncio.gather(*(process.communicate(b"go\n") for process in processes))
    assert not any(process.returncode for process in processes), done
    return [json.loads(ids) for ids, _ in done]


async def start(*arguments: str) -> Process:
    command = [sys.executable, "-m", "tests.appending", *arguments]
    return await asyncio.create_subprocess_exec(
        *command, cwd=ROOT, stdin=PIPE, stdout=PIPE, stderr=PIPE
    )
