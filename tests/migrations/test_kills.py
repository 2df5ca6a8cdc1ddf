"""An upgrade that is killed anywhere is completed by the next, as if nothing had happened."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.migrations.catalogue import differences
from tests.migrations.killing import Point, copied, killed, state, upgrade
from tests.migrations.revisions import Database

ENTRY = 3
"""The revision of the store that is upgraded; up to it, an empty database is."""

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
END: Point = ("hermes_orm.dialects.revision_runs", "run_revisions", 0)
"""The completion of the index, which is the last step."""
ALL = [*DATA_STEPS, *SCHEMAS, END]
FEW: list[Point] = [("0016", "mark_delegates", 1), ("0025", "fill", 1), END]

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
MANY = {"sqlite": 30, "postgresql+asyncpg": 2000, "postgresql+psycopg": 2000}
"""On PostgreSQL enough for indexes to be built concurrently, which commits what was done before."""


@pytest.mark.parametrize(
    ("driver", "points"),
    [
        pytest.param("sqlite", FEW, id="sqlite"),
        pytest.param("postgresql+asyncpg", FEW[1:], id="asyncpg"),
        *(
            pytest.param(driver, ALL, marks=pytest.mark.full, id=f"{driver}, all")
            for driver in MANY
        ),
    ],
)
async def test_killed_upgrade_is_completed_by_the_next(
    driver: str,
    points: list[Point],
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
    for number, point in enumerate(points):
        original = story if point[0] > f"{ENTRY:04}" else empty
        if original not in expected:
            async with copied(original, request, tmp_path / "undisturbed") as database:
                await upgrade(database.location, peers)
                expected[original] = await state(database), await database.shape()
        async with copied(original, request, tmp_path / f"killed {number}") as database:
            await killed(database, point, peers)
            await upgrade(database.location, peers)
            rows, shape = expected[original]
            assert await state(database) == rows, point
            assert differences(await database.shape(), shape) == [], point
