"""`hermes-orm db …`: what an operator asks of the database itself."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.table import Table

from hermes_orm.cli.failures import Exit, told_failures
from hermes_orm.cli.progress import progress
from hermes_orm.cli.store import AsJson, existing, located
from hermes_orm.location import Location, SqliteLocation

HELP: Final = """Inspect, upgrade, check and back up a database.

Exit codes: 0 done; 1 failed (the reason is on standard error); 2 wrong arguments; 3 the database
needs attention: `status` found that a migration is required or impossible, `check` found problems.
"""

app = typer.Typer(help=HELP, no_args_is_help=True)
out = Console(highlight=False, soft_wrap=True)

Url = Annotated[
    str | None,
    typer.Argument(
        metavar="[URL|FILE]",
        envvar="HERMES_DATABASE_URL",
        help="A SQLite file, or postgresql+asyncpg://user:pass@host/db (a direct connection, no"
        " pooler). Default: the store of the Hermes home.",
    ),
]
LockWait = Annotated[
    float, typer.Option(min=0, metavar="SECONDS", help="How long to wait for another migration.")
]
NoBackup = Annotated[
    bool, typer.Option("--no-backup", help="Don't copy a SQLite file before its first change.")
]


@app.command()
def status(url: Url = None, as_json: AsJson = False) -> None:
    """Tell versions, fingerprint, sizes, and what an upgrade would do. Changes nothing."""
    from hermes_orm.dialects.inspection import status_of

    with told_failures(url):
        location = existing(url)
        found = asyncio.run(status_of(location))
    _show({"database": str(location), **asdict(found)}, as_json)
    if found.kind in ("older", "refused"):
        raise typer.Exit(Exit.NEEDS_ATTENTION)


@app.command()
def upgrade(
    url: Url = None,
    revision: Annotated[str, typer.Option(help="The revision to upgrade to.")] = "head",
    lock_wait: LockWait = 300.0,
    no_backup: NoBackup = False,
    as_json: AsJson = False,
) -> None:
    """Bring the database to a revision, as `alembic upgrade` does; create what is missing."""
    from hermes_orm import migrations

    with told_failures(url), progress("migrating", as_json) as shown:
        location = located(url)
        with shown.revisions():
            asyncio.run(_upgrade(location, revision, lock_wait, not no_backup))
        now = asyncio.run(migrations.current(location))
    _show({"database": str(location), "revision": now}, as_json)


async def _upgrade(location: Location, revision: str, lock_wait: float, backup: bool) -> None:
    from alembic.util import CommandError

    from hermes_orm import migrations

    try:
        await migrations.upgrade(location, revision, lock_wait=lock_wait, backup=backup)
    except CommandError as error:  # an unknown revision, for example
        raise ValueError(str(error)) from None


@app.command()
def adopt(
    url: Url = None,
    lock_wait: LockWait = 300.0,
    no_backup: NoBackup = False,
    no_guess: Annotated[
        bool,
        typer.Option("--no-guess", help="Refuse a file that does not tell its schema version."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Bring a database of an existing store to the newest revision, and report what was done."""
    from hermes_orm import migrations

    with told_failures(url), progress("adopting", as_json) as shown:
        location = existing(url)
        with shown.revisions():
            report = asyncio.run(
                migrations.adopt(
                    location, backup=not no_backup, guess=not no_guess, lock_wait=lock_wait
                )
            )
    _show({"database": str(location), **asdict(report)}, as_json)


@app.command()
def check(
    url: Url = None,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair",
            help="Create missing columns and indexes, and compute the recency of sessions anew.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check integrity, references, search index, schema and recency."""
    with told_failures(url), progress("checking", as_json) as shown:
        location = existing(url)
        findings = asyncio.run(_findings(location, shown.step, repair))
    shown_findings = [f"{finding.area}: {finding.text}" for finding in findings]
    _show({"database": str(location), "problems": shown_findings}, as_json)
    if findings:
        raise typer.Exit(Exit.NEEDS_ATTENTION)


async def _findings(location: Location, step: Callable[[str], None], repair: bool) -> list[Any]:
    from hermes_orm import migrations
    from hermes_orm.dialects.inspection import findings_of

    findings = await findings_of(location, step)
    if not findings or not repair:
        return findings
    step("repairing")
    await migrations.repair(location)
    return await findings_of(location, step)


@app.command()
def backup(
    url: Url = None,
    to: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The copy; it must not exist yet.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Copy a SQLite file while others use it (SQLite's online backup); the copy is checked."""
    with told_failures(url), progress("copying", as_json) as shown:
        location = existing(url)
        from hermes_orm.dialects.sqlite.online_backup import back_up

        copy = back_up(_file(location), to, shown.share)
    _show({"database": str(location), "backup": str(copy), "bytes": copy.stat().st_size}, as_json)


def _file(location: Location) -> Path:
    match location:
        case SqliteLocation(path):
            return path
    raise ValueError("a PostgreSQL database is backed up by the server's tools: pg_dump")


def _show(result: dict[str, Any], as_json: bool) -> None:
    """Print a result for machines, or as a table without what is empty."""
    if as_json:
        typer.echo(json.dumps(result, ensure_ascii=False))
        return
    table = Table.grid(padding=(0, 2))
    for name, value in result.items():
        if value not in (None, {}, (), []):
            table.add_row(name.replace("_", " "), _words(value))
    if result.get("problems") == []:
        table.add_row("problems", "none")
    out.print(table)


def _words(value: Any) -> str:
    if isinstance(value, dict):
        return "\n".join(f"{name}: {_words(number)}" for name, number in value.items())
    if isinstance(value, list | tuple):
        return "\n".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) else str(value)
