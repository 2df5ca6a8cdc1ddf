"""The store that a command works on, and the sessions that its arguments name."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar

import typer

from hermes_orm.cli.failures import Exit, told_failures
from hermes_orm.location import Location, SqliteLocation, locate
from hermes_orm.session_db import SessionDB
from hermes_orm.session_text import fold_ascii

T = TypeVar("T")

Db = Annotated[
    str | None,
    typer.Option(
        "--db",
        metavar="URL|FILE",
        envvar="HERMES_DATABASE_URL",
        help="A SQLite file, or postgresql+asyncpg://user:pass@host/db. Default: the store of the"
        " Hermes home.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object, for machines.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would happen; change nothing.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")]
Name = Annotated[
    str, typer.Argument(metavar="SESSION", help="An id, the beginning of one, or a title.")
]


def existing(url: str | None) -> Location:
    """Return the location of a database that can hold sessions; an error for a missing file."""
    location = located(url)
    if isinstance(location, SqliteLocation) and not location.path.exists():
        missing = "there is no such file" if url else f"{location}: there is no such file"
        raise FileNotFoundError(f"{missing}; `hermes-orm db upgrade` creates it")
    return location


def located(url: str | None) -> Location:
    """Return the location that an argument names."""
    location = locate(url)
    if isinstance(location, SqliteLocation) and location.is_memory:
        raise ValueError("give a file or a PostgreSQL URL: a database in memory is gone at once")
    if isinstance(location, SqliteLocation) and location.path.is_dir():
        raise IsADirectoryError("this is a directory; name the file in it, such as state.db")
    return location


def look(url: str | None, question: Callable[[SessionDB], Awaitable[T]]) -> T:
    """Return the answer of a store that is opened for reading only."""
    with told_failures(url):
        existing(url)
        return asyncio.run(_with_store(url, question, read_only=True))


def change(
    url: str | None, work: Callable[[SessionDB], Awaitable[T]], *, creates: bool = False
) -> T:
    """Return the result of work on a store; `creates` it if need be."""
    with told_failures(url):
        (located if creates else existing)(url)
        return asyncio.run(_with_store(url, work, read_only=False))


async def _with_store(
    url: str | None, work: Callable[[SessionDB], Awaitable[T]], *, read_only: bool
) -> T:
    async with SessionDB(url, read_only=read_only) as db:
        return await work(db)


async def session_named(db: SessionDB, name: str) -> str:
    """Return the id of the session that an argument names; ValueError when none or several are."""
    found = await db.resolve_session_id(name) or await db.resolve_session_by_title(name)
    if found is not None:
        return found
    holding = await db.search_sessions_by_id(name, limit=100)
    similar = [s["id"] for s in holding if fold_ascii(s["id"]).startswith(fold_ascii(name))]
    if similar:
        shown = ", ".join(similar[:3]) + (" ..." if len(similar) > 3 else "")
        raise ValueError(f"{name!r} begins several ids: {shown}; give more of the one you mean")
    raise ValueError(
        f"no session has {name!r} as its id, as the beginning of it, or as its title;"
        " `hermes-orm sessions list` shows them"
    )


async def sessions_named(db: SessionDB, names: list[str]) -> list[str]:
    """Return the ids of sessions that arguments name, each once."""
    return list(dict.fromkeys([await session_named(db, name) for name in names]))


def confirm(question: str, *, is_given: bool) -> None:
    """Ask on standard error, unless the answer is given; end the command without a yes."""
    if is_given:
        return
    try:
        typer.confirm(question, abort=True, err=True)
    except typer.Abort:
        typer.echo("hermes-orm: nothing was changed (--yes answers in advance)", err=True)
        raise typer.Exit(Exit.FAILED) from None
