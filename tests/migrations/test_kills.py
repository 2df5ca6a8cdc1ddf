"""An upgrade that is killed anywhere is completed by the next, as if nothing had happened.

A run without settings kills at three points; HERMES_TEST_KILL_POINTS=all kills in each revision and
each data step, which takes about five minutes.
"""

import asyncio
import json
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, inspect, text

from tests.migrations.catalogue import differences
from tests.migrations.killing import LAST, upgrade
from tests.migrations.revisions import Database

CHECKOUT = Path(__file__).parents[2]
ENTRY = 3
"""The revision of the store that is upgraded; up to it, an empty database is."""

Point = tuple[str, str, int]

DATA_STEPS: list[Point] = [
    ("0004", "number_duplicates", 1),
    ("0016", "mark_delegates", 1),
    ("0016", "mark_orphans", 1),
    ("0018", "fill", 1),
    ("0020", "fill", 1),
    ("0022", "change_key", 2),  # the table is gone, its rows are in a temporary one
    ("0025", "fill", 1),
    ("0025", "fill", 2),
    ("0031", "give_uids", 1),
    ("0031", "describe", 1),
]
SCHEMAS: list[Point] = [(f"{number:04}", "schema", 0) for number in range(1, 32)]
SEARCH: Point = (LAST, "establish_search", 0)

ALL = [*DATA_STEPS, *SCHEMAS, SEARCH]
FEW: list[Point] = [("0016", "mark_delegates", 1), ("0025", "fill", 1), SEARCH]
POINTS = ALL if os.environ.get("HERMES_TEST_KILL_POINTS") == "all" else FEW

PEERS = {
    "key-1": {"session_id": "root", "origin": {"chat_id": 7}, "display_name": "Ann"},
    "key-2": {"session_id": "twin", "memory_flushed": True},
}
STORY = (
    "INSERT INTO sessions (id, source, user_id, parent_session_id, started_at, ended_at, title, "
    "model, system_prompt, input_tokens) VALUES "
    "('root', 'cli', 'u', NULL, 1, 2, 'Garden', 'm', 'be kind', 7), "
    "('twin', 'cli', 'u', NULL, 2, 3, 'Garden', 'm', 'be kind', 2), "
    "('late', 'cli', 'u', NULL, 3, 4, 'Garden', NULL, 'be brief', 3), "
    "('child', 'cli', 'u', 'root', 4, 5, NULL, 'm', NULL, 0), "
    "('other child', 'cli', 'u', 'root', 5, 6, NULL, 'm', NULL, 0), "
    "('orphan', 'cli', NULL, NULL, 6, 7, NULL, 'm', NULL, 0), "
    "('other orphan', 'cli', NULL, NULL, 7, 8, NULL, 'm', NULL, 0)",
    "INSERT INTO messages (session_id, role, content, timestamp) "
    "SELECT id, 'tool', 'in hay', started_at FROM sessions ORDER BY id",
    "INSERT INTO messages (session_id, role, content, timestamp) "
    "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :many) "
    "SELECT 'root', 'user', 'needle ' || n, n FROM numbers",
)
MANY = {"sqlite": 30, "postgresql+asyncpg": 2000}
"""On PostgreSQL enough for indexes to be built concurrently, which commits what was done before."""

RANDOM = ("message_uid", "store_instance_id", "store_created_at_utc")


def contents(connection: Connection) -> dict[str, list[str]]:
    """Return the rows of all tables, but for what is random; the index of SQLite aside."""
    found = {}
    for table in inspect(connection).get_table_names():
        if not table.startswith("messages_fts"):
            rows = connection.execute(text(f"SELECT * FROM {table}")).mappings()
            kept = ({k: v for k, v in row.items() if k not in RANDOM} for row in rows)
            known = ({**row, "value": None} if row.get("key") in RANDOM else row for row in kept)
            found[table] = sorted(str(sorted(row.items())) for row in known)
    return found


async def state(database: Database) -> dict[str, Any]:
    """Return everything that two upgrades of one store have in common."""
    found: dict[str, Any] = {"rows": await database(contents)}
    uids = "SELECT count(*) - count(DISTINCT message_uid) FROM messages"
    found["messages without a uid of their own"] = await database.rows(uids)
    if not database.is_postgres:
        await database.run(
            "INSERT INTO messages_fts (messages_fts, rank) VALUES ('integrity-check', 1)"
        )
        query = "SELECT rowid FROM messages_fts WHERE messages_fts MATCH 'needle'"
        found["hits"] = await database.rows(query)
        folder = Path(database.location).parent
        found["files"] = sorted(path.name.partition(".bak-")[0] for path in folder.iterdir())
    return found


@asynccontextmanager
async def copied(
    original: Database, request: pytest.FixtureRequest, folder: Path
) -> AsyncIterator[Database]:
    """Yield a copy of a database that nobody uses."""
    if not original.is_postgres:
        folder.mkdir()
        yield Database(str(shutil.copyfile(original.location, folder / "state.db")))
        shutil.rmtree(folder)
        return
    server = request.getfixturevalue("postgres_server")
    template = original.location.rpartition("/")[2]
    name = f"{template}_copy"
    server.create(name, template)
    yield Database(server.location(name, "postgresql+asyncpg"))
    server.drop(name)


async def killed(database: Database, peers: Path, point: Point) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.migrations.killing"),
        *(database.location, str(peers), *map(str, point)),
        cwd=CHECKOUT,
        stderr=asyncio.subprocess.PIPE,
    )
    _, errors = await process.communicate()
    assert process.returncode == -signal.SIGKILL, (point, errors.decode())


@pytest.mark.parametrize("driver", MANY)
async def test_killed_upgrade_is_completed_by_the_next(
    driver: str,
    request: pytest.FixtureRequest,
    make_location: Callable[..., str],
    tmp_path: Path,
) -> None:
    peers = tmp_path / "sessions.json"
    peers.write_text(json.dumps(PEERS))
    empty, story = (Database(make_location(driver, empty=True)) for _ in range(2))
    await empty.run("SELECT 1")
    await story.upgrade(f"{ENTRY:04}")
    await story.run(*STORY, many=MANY[driver])
    expected: dict[Database, tuple[Any, Any]] = {}
    for number, point in enumerate(POINTS):
        original = story if point[0] > f"{ENTRY:04}" else empty
        if original not in expected:
            async with copied(original, request, tmp_path / "undisturbed") as database:
                await upgrade(database.location, peers)
                expected[original] = await state(database), await database.shape()
        async with copied(original, request, tmp_path / f"killed {number}") as database:
            await killed(database, peers, point)
            await upgrade(database.location, peers)
            rows, shape = expected[original]
            assert await state(database) == rows, point
            assert differences(await database.shape(), shape) == [], point
