"""Commands of `hermes-orm`: results on standard output, a failure as one line on standard error."""

import io
import logging
import sys
from importlib import metadata
from typing import Annotated

import typer

from hermes_orm.cli.copy import copy
from hermes_orm.cli.db import app as db_commands
from hermes_orm.cli.demo import demo
from hermes_orm.cli.sessions import app as session_commands
from hermes_orm.cli.stats import stats

app = typer.Typer(
    help="The session store of the Hermes agent, on SQLite and PostgreSQL.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(demo)
app.command()(stats)
app.command()(copy)
app.add_typer(db_commands, name="db")
app.add_typer(session_commands, name="sessions")


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
