"""An upgrade that is killed on its way.

`python -m tests.migrations.killing LOCATION PEERS OWNER FUNCTION CHANGES` upgrades, and is killed
in that function of that revision or module: after so many statements that change something, or
with 0, when it returns.
"""

import asyncio
import importlib
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from alembic.config import Config
from sqlalchemy import Connection, Engine, event, inspect, text

from hermes_orm import migrations
from hermes_orm.dialects import revision_runs
from tests.migrations.revisions import Database

CHECKOUT = Path(__file__).parents[2]

Point = tuple[str, str, int]
"""Revision or module, function, and number of statements."""

RANDOM = ("message_uid", "store_instance_id", "store_created_at_utc")


async def upgrade(location: str, peers: Path) -> None:
    """Upgrade as a store does that is opened, with a file for the data step of revision 0018."""
    configure = revision_runs._config

    def named(*arguments: Any, **options: Any) -> Config:
        config = configure(*arguments, **options)
        config.attributes["sessions_json"] = str(peers)
        return config

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(revision_runs, "_config", named)
        await migrations.upgrade(location)


def kill_in(name: str, function: str, changes: int) -> None:
    """Have this process killed in a function of a revision or module."""
    owner: Any
    if name.isdecimal():
        owner = revision_runs._scripts().get_revision(name).module
    else:
        owner = importlib.import_module(name)
    run, running, count = getattr(owner, function), False, 0

    def watched(*arguments: Any, **options: Any) -> Any:
        nonlocal running
        running = True
        result = run(*arguments, **options)
        running = False
        if not changes:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    def counted(_: Any, __: Any, statement: str, *___: Any) -> None:
        nonlocal count
        if running and statement.split(None, 1)[0].upper() not in ("SELECT", "PRAGMA"):
            count += 1
            if count == changes:
                os.kill(os.getpid(), signal.SIGKILL)

    setattr(owner, function, watched)
    event.listen(Engine, "after_cursor_execute", counted)


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
    driver, _, template = original.location.partition("://")
    template = template.rpartition("/")[2]
    name = f"{template}_copy"
    server.create(name, template)
    yield Database(server.location(name, driver))
    server.drop(name)


async def killed(database: Database, point: Point, peers: Path) -> None:
    """Have an upgrade killed at a point."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.migrations.killing"),
        *(database.location, str(peers), *map(str, point)),
        cwd=CHECKOUT,
        stderr=asyncio.subprocess.PIPE,
    )
    _, errors = await process.communicate()
    assert process.returncode == -signal.SIGKILL, (point, errors.decode())


if __name__ == "__main__":
    location, peers, owner, function, changes = sys.argv[1:]
    kill_in(owner, function, int(changes))
    asyncio.run(upgrade(location, Path(peers)))
