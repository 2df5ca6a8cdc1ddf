"""An import that is killed leaves whole sessions; run again, it stores the others, once."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hermes_orm import SessionDB
from tests.cli.commands import result
from tests.conftest import DRIVERS
from tests.contract.turns import assistant, tool, user

ROOT = Path(__file__).parents[2]
SESSIONS = 20
COMMITTED = 5
KILLED = [("call", "sessions"), ("call", "end"), ("command", "begin"), ("command", "messages")]
"""How sessions are imported in batches, and when that is killed during the second one."""


async def write(location: str) -> None:
    async with SessionDB(location) as db:
        for n in range(SESSIONS):
            parent = f"s{n - 7:02}" if n > 7 else None
            await db.create_session(
                f"s{n:02}", "cli", system_prompt=f"prompt {n % 3}", parent_session_id=parent
            )
            turns = [user(f"needle {n}"), assistant("I look.", f"c{n}"), tool("found", f"c{n}")]
            await db.append_messages_batch(f"s{n:02}", [*turns, assistant(f"here {n}")])
            await db.set_session_title(f"s{n:02}", f"Title {n}")


async def exported(location: str) -> list[Any]:
    """Return all sessions in the order of their ids, with what every import keeps."""
    async with SessionDB(location) as db:
        assert len(await db.search_messages("needle", limit=100)) == await db.session_count()
        sessions: list[Any] = sorted(await db.export_all(), key=lambda session: session["id"])
        for session in sessions:
            kept = ("role", "content", "tool_calls", "tool_call_id", "timestamp")
            messages = [{key: row[key] for key in kept} for row in session["messages"]]
            session["messages"] = messages
        return sessions


async def imported(location: str, path: Path) -> Any:
    async with SessionDB(location) as db:
        return await db.import_sessions([json.loads(s) for s in path.read_text().splitlines()])


@pytest.mark.parametrize("driver", DRIVERS[:2])
def test_killed_import_is_completed_by_the_next(
    driver: str, make_location: Callable[..., str], tmp_path: Path
) -> None:
    source, undisturbed = make_location("sqlite"), make_location(driver)
    path = tmp_path / "sessions.jsonl"
    asyncio.run(write(source))
    sessions = asyncio.run(exported(source))
    path.write_text("".join(json.dumps(session) + "\n" for session in sessions))
    asyncio.run(imported(undisturbed, path))
    expected = asyncio.run(exported(undisturbed))
    assert [s["messages"] for s in expected] == [s["messages"] for s in sessions]
    for way, moment in KILLED:
        location = make_location(driver)
        command = [sys.executable, "-m", "tests.portability.importing", location, str(path)]
        done = subprocess.run([*command, way, moment], cwd=ROOT, capture_output=True)
        assert done.returncode == -signal.SIGKILL, (way, moment, done.stderr)
        assert asyncio.run(exported(location)) == expected[:COMMITTED], (way, moment)
        if way == "call":
            told = asyncio.run(imported(location, path))
        else:
            told = result("sessions", "import", str(path), "--db", location)
        assert (told["imported"], told["skipped"]) == (SESSIONS - COMMITTED, COMMITTED)
        assert told["detached"] == 0
        assert asyncio.run(exported(location)) == expected, (way, moment)
