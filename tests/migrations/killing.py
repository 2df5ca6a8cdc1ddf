"""An upgrade that is killed on its way.

`python -m tests.migrations.killing LOCATION PEERS REVISION FUNCTION CHANGES` upgrades, and is
killed in that function of that revision: after so many statements that change something, or with
0, when it returns. The revision "search" is the completion of the index, which is the last step.
"""

import asyncio
import importlib
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from alembic.config import Config
from sqlalchemy import Engine, event

from hermes_orm import migrations

LAST = "search"


async def upgrade(location: str, peers: Path) -> None:
    """Upgrade as a store does that is opened, with a file for the data step of revision 0018."""
    configure = migrations._config

    def named(*arguments: Any, **options: Any) -> Config:
        config = configure(*arguments, **options)
        config.attributes["sessions_json"] = str(peers)
        return config

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(migrations, "_config", named)
        await migrations.upgrade(location)


def kill_in(database: str, revision: str, function: str, changes: int) -> None:
    """Have this process killed in a function of a revision."""
    owner: Any
    if revision == LAST:
        owner = importlib.import_module(f"hermes_orm.dialects.{database}.frozen")
    else:
        owner = migrations._scripts().get_revision(revision).module
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


if __name__ == "__main__":
    location, peers, revision, function, changes = sys.argv[1:]
    database = "postgresql" if location.startswith("postgresql") else "sqlite"
    kill_in(database, revision, function, int(changes))
    asyncio.run(upgrade(location, Path(peers)))
