"""Commands of `hermes-orm`: results on standard output, a failure as one line on standard error."""

import asyncio
import contextlib
import io
import logging
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from sqlalchemy.exc import SQLAlchemyError

from hermes_orm.demo import play, show
from hermes_orm.location import PostgresLocation, locate

FAILURES: Final = (ImportError, OSError, RuntimeError, ValueError, sqlite3.Error, SQLAlchemyError)
"""What arguments and databases can cause; anything else is a defect and shows its traceback."""

app = typer.Typer(
    help="The session store of the Hermes agent, on SQLite and PostgreSQL.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _version() -> str:
    try:
        return metadata.version("hermes-orm")
    except metadata.PackageNotFoundError:
        return "(not installed)"


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"hermes-orm {_version()}")
        raise typer.Exit


@app.callback()
def prepare(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Keep the store's log quiet up to errors; never fail because a terminal lacks a character."""
    logging.basicConfig(format="hermes-orm: %(message)s", level=logging.ERROR)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


@app.command()
def demo(
    url: Annotated[
        str | None,
        typer.Option(
            "--url",
            "--path",
            metavar="URL|FILE",
            help="Use this store: a SQLite file, or postgresql+asyncpg://user:pass@host/db."
            " The session stays in it. Default: a file in a temporary folder.",
        ),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the temporary file.")] = False,
) -> None:
    """Record a short agent conversation, resume it after a restart, and search it."""
    with _told_failures(url), _store(url, keep) as location:
        if location == ":memory:":
            raise ValueError("the demo opens its store twice: give it a file or a PostgreSQL URL")
        played = asyncio.run(play(location))
        show(played, Console(highlight=False), is_kept=keep or url is not None)


@contextlib.contextmanager
def _store(url: str | None, keep: bool) -> Iterator[str]:
    """Yield the store that was asked for, or a file in a folder that goes away."""
    if url is not None:
        yield url
        return
    folder = tempfile.mkdtemp(prefix="hermes-orm-")
    try:
        yield str(Path(folder, "demo.db"))
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _told_failures(url: str | None) -> Iterator[None]:
    """End the command with one line, without the password, when the store cannot be used."""
    try:
        yield
    except FAILURES as error:
        typer.echo(f"hermes-orm: {_reason(error, url)}", err=True)
        raise typer.Exit(1) from None


def _reason(error: Exception, url: str | None) -> str:
    """Return the error's text in one line, after the store's location, without the password."""
    reason = " ".join(str(getattr(error, "orig", None) or error).split()) or type(error).__name__
    if url is None:
        return reason
    try:
        location = locate(url)
    except ValueError:
        return reason  # the location itself is wrong, and its text says how
    if isinstance(location, PostgresLocation) and isinstance(error, OSError | SQLAlchemyError):
        reason = location.mask(reason)  # a driver's words; ours name no password
    return f"{location}: {reason}"
