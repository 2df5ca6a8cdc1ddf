"""Bring a database to a revision of the schema, from code or through Alembic's command line.

Importing this module imports Alembic; a store does so only when a database is not current.
"""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection

from hermes_orm.dialects import make_dialect, revision_runs
from hermes_orm.dialects.migrating import migrate_with, read_with
from hermes_orm.location import locate

T = TypeVar("T")

LOCK_WAIT_SECONDS = 300.0
"""How long a migration waits for another one to end."""

CONTEXT_OPTIONS: dict[str, Any] = {
    "version_table": "hermes_alembic_version",  # a host keeps its own `alembic_version`
    "transactional_ddl": True,
    "on_version_apply": revision_runs.follow_revision,
}
"""How Alembic runs, whoever starts it."""

_in_use = threading.Lock()  # Alembic keeps the running migration in module globals


async def upgrade(
    url: str, revision: str = "head", *, lock_wait: float = LOCK_WAIT_SECONDS
) -> None:
    """Bring the database at `url` (or a SQLite file's path) to a revision; create what is missing.

    Raises SchemaError, and changes nothing, when the database is foreign or when another migration
    holds it for `lock_wait` seconds.
    """

    def action(connection: Connection) -> None:
        config = Config(attributes={"connection": connection})
        config.set_main_option("script_location", str(script_folder()).replace("%", "%%"))
        command.upgrade(config, revision)

    await run(url, action, lock_wait=lock_wait)


async def current(url: str) -> str | None:
    """Return the revision of the database at `url`, or None when it bears no stamp."""

    def action(connection: Connection) -> str | None:
        context = MigrationContext.configure(connection, opts=CONTEXT_OPTIONS)
        return context.get_current_revision()

    return await read_with(locate(url), action)


async def run(
    url: str, action: Callable[[Connection], T], *, lock_wait: float = LOCK_WAIT_SECONDS
) -> T:
    """Run `action` on a connection that holds the migration lock of the database at `url`."""
    location = locate(url)
    while not _in_use.acquire(blocking=False):  # noqa: ASYNC110  (any thread may hold it)
        await asyncio.sleep(0.05)
    try:
        return await migrate_with(location, action, lock_wait=lock_wait)
    finally:
        _in_use.release()


def dialect_name(url: str) -> str:
    """Return SQLAlchemy's name of the database at `url`."""
    return make_dialect(locate(url)).name


def script_folder() -> Path:
    """Return the folder of the revisions: in the package, or beside it in a checkout."""
    package = Path(__file__).parent
    installed = package / "_alembic"
    return installed if installed.exists() else package.with_name("alembic")
