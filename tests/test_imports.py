"""What a SQLite store loads: nothing that only migrations, PostgreSQL or a configuration need."""

import subprocess
import sys
from pathlib import Path

import pytest

FIRST_OPERATION = """
import asyncio, sys
from hermes_orm import SessionDB

async def main():
    async with SessionDB(sys.argv[1]) as db:
        await db.create_session("s", "cli")
        assert await db.message_count() == 0

asyncio.run(main())
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""
COSTLY = {"alembic", "asyncpg", "psycopg", "pydantic", "yaml", "typer", "rich"}


@pytest.mark.parametrize("state", ["new", "existing"])
def test_first_operation_on_sqlite_loads_no_costly_package(
    tmp_path: Path, sqlite_template: Path, state: str
) -> None:
    path = tmp_path / "state.db"
    if state == "existing":
        path.write_bytes(sqlite_template.read_bytes())
    done = subprocess.run(
        [sys.executable, "-c", FIRST_OPERATION, path],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert not COSTLY & set(done.stdout.split())
