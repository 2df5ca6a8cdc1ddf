"""Bring a database to a revision of the schema, from code or through Alembic's command line.

Alembic is imported when a revision is about to run: an existing file is being copied by then.
"""

import asyncio
import threading
from collections.abc import Callable
from types import ModuleType
from typing import TypeVar

from sqlalchemy import Connection, inspect

from hermes_orm.config import Settings, load_settings
from hermes_orm.dialects import make_dialect
from hermes_orm.dialects.adoption import Adoption, AdoptionReport
from hermes_orm.dialects.inspection import restore
from hermes_orm.dialects.migrating import migrate_with, read_with
from hermes_orm.dialects.recency import fill_recency
from hermes_orm.errors import SchemaError
from hermes_orm.home import hermes_home
from hermes_orm.location import Location, locate
from hermes_orm.models.meta import HEAD_REVISION

T = TypeVar("T")

LOCK_WAIT_SECONDS = 300.0
"""How long a migration waits for another one to end."""

_in_use = threading.Lock()  # Alembic keeps the running migration in module globals


async def upgrade(
    url: str | Location,
    revision: str = "head",
    *,
    lock_wait: float = LOCK_WAIT_SECONDS,
    settings: Settings | None = None,
    backup: bool = True,
    hasty: bool = False,
) -> None:
    """Bring the database at `url` (or a SQLite file's path) to a revision; create what is missing.

    A database of the existing stores is adopted first. `settings` are those of the Hermes home
    that is active now unless given. With `hasty` a store that is opened completes what can wait.

    Raises SchemaError, and changes nothing, when the database is foreign or when another migration
    holds it for `lock_wait` seconds.
    """
    adoption = Adoption(
        replay_schema, backup=backup, covers_stamped=revision == "head", is_hasty=hasty
    )
    await run(url, _to(revision), lock_wait=lock_wait, settings=settings, adoption=adoption)


async def adopt(
    url: str | Location,
    *,
    backup: bool = True,
    guess: bool = True,
    lock_wait: float = LOCK_WAIT_SECONDS,
    settings: Settings | None = None,
) -> AdoptionReport:
    """Bring an existing database to the newest revision, in one transaction; return what was done.

    A SQLite file is copied first, beside itself, unless `backup` is False; one that does not tell
    its version is taken for what it holds, if `guess` allows it. Raises SchemaError, and changes
    nothing, when the database is foreign, newer, empty or fails its checks afterwards.
    """
    reports: list[AdoptionReport] = []
    adoption = Adoption(
        replay_schema, reports.append, backup=backup, guesses=guess, covers_stamped=True
    )

    def action(connection: Connection) -> None:
        if not inspect(connection).get_table_names():
            raise SchemaError(
                "the database is empty: nothing was changed; run hermes-orm db upgrade to create it"
            )
        _to("head")(connection)

    await run(url, action, lock_wait=lock_wait, settings=settings, adoption=adoption)
    return reports[0]


def replay_schema(connection: Connection, revision: str) -> None:
    """Create what is missing of the schema of `revision`, without data steps."""
    _runs().replay_schema(connection, revision)


async def downgrade(
    url: str | Location,
    revision: str,
    *,
    force: bool = False,
    lock_wait: float = LOCK_WAIT_SECONDS,
) -> None:
    """Take the database at `url` back to a revision, for a program that knows no newer one.

    Raises alembic.util.CommandError, and changes nothing, when that would lose what users have
    stored, unless `force` confirms the loss.
    """

    def action(connection: Connection) -> None:
        _runs().downgrade(connection, revision, force=force)

    await run(url, action, lock_wait=lock_wait)


async def repair(url: str | Location, *, lock_wait: float = LOCK_WAIT_SECONDS) -> None:
    """Create what a database of the newest revision lacks; compute the recency of sessions anew.

    Columns, indexes and references are meant; rows and the search index are left alone.
    """

    def action(connection: Connection) -> None:
        restore(connection, lambda: replay_schema(connection, HEAD_REVISION))
        fill_recency(connection)

    await run(url, action, lock_wait=lock_wait)


def _to(revision: str) -> Callable[[Connection], None]:
    """Return what brings a database to a revision."""

    def action(connection: Connection) -> None:
        deferred = revision == "head"  # the dialect completes the index of a file that it adopts
        _runs().upgrade(connection, revision, defer_search=deferred)

    return action


def _runs() -> ModuleType:
    """Return what runs revisions; it imports Alembic."""
    from hermes_orm.dialects import revision_runs

    return revision_runs


async def current(url: str | Location) -> str | None:
    """Return the revision of the database at `url`, or None when it bears no stamp."""
    return await read(url, lambda connection: _runs().current(connection))


async def read(url: str | Location, action: Callable[[Connection], T]) -> T:
    """Run `action` on a connection that changes nothing, waits for nobody and adopts nothing."""
    return await read_with(locate(url), action)


async def run(
    url: str | Location,
    action: Callable[[Connection], T],
    *,
    lock_wait: float = LOCK_WAIT_SECONDS,
    settings: Settings | None = None,
    adoption: Adoption | None = None,
) -> T:
    """Run `action` on a connection that holds the migration lock of the database at `url`.

    `adoption` says how a database of the existing stores is adopted first; None: as `upgrade` does.
    """
    location = locate(url)
    while not _in_use.acquire(blocking=False):  # noqa: ASYNC110  (any thread may hold it)
        await asyncio.sleep(0.05)
    try:
        return await migrate_with(
            location,
            action,
            lock_wait=lock_wait,
            settings=settings or load_settings(hermes_home()),
            adoption=adoption or Adoption(replay_schema),
        )
    finally:
        _in_use.release()


def dialect_name(url: str | Location) -> str:
    """Return SQLAlchemy's name of the database at `url`."""
    return make_dialect(locate(url)).name
