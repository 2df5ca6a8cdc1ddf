"""An import in batches that is killed in the second: `python -m tests.portability.importing`.

Arguments: a location, a file of JSON Lines, "call" or "command", and the moment: "begin",
"sessions" (stored without messages), "messages" (of some sessions) or "end" (before the commit).
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from hermes_orm import SessionDB
from hermes_orm.cli import app, importing
from hermes_orm.repositories.portability import exports, imports

BATCH: Final = 5

location, path, way, moment = sys.argv[1:]
store = imports.ImportRepository.import_sessions
portions = exports.portions
batches: list[object] = []


def reach(passed: str) -> None:
    if len(batches) == 2 and passed == moment:
        os.kill(os.getpid(), signal.SIGKILL)


def watched_store(self: imports.ImportRepository, *arguments: Any) -> Any:
    batches.append(arguments)
    reach("begin")
    return store(self, *arguments)


def watched_portions(counted: Iterable[tuple[int, Any]]) -> Iterator[list[Any]]:
    passed = "sessions"
    for portion in portions(counted):
        reach(passed)
        yield portion
        passed = "messages"
    reach("end")


async def call() -> None:
    sessions = list(map(json.loads, Path(path).read_text().splitlines()))
    async with SessionDB(location) as db:
        for start in range(0, len(sessions), BATCH):
            await db.import_sessions(sessions[start : start + BATCH])


if __name__ == "__main__":
    patched = pytest.MonkeyPatch()
    patched.setattr(exports, "PORTION_MESSAGES", 10)
    patched.setattr(importing, "MOST_SESSIONS", BATCH)
    patched.setattr(imports, "portions", watched_portions)
    patched.setattr(imports.ImportRepository, "import_sessions", watched_store)
    if way == "call":
        asyncio.run(call())
    else:
        app(["sessions", "import", path, "--db", location])
