"""How a command fails: one line on standard error, without the password."""

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Final

import typer
from sqlalchemy.exc import SQLAlchemyError

from hermes_orm.location import Location, PostgresLocation, locate

FAILURES: Final = (ImportError, OSError, RuntimeError, ValueError, sqlite3.Error, SQLAlchemyError)
"""What arguments and databases can cause; anything else is a defect and shows its traceback."""

MALFORMED: Final = "database disk image is malformed"


class Exit(IntEnum):
    """Exit codes of every command; 0 is success."""

    FAILED = 1
    """The command could not do what it was asked for."""
    USAGE = 2
    """The arguments are wrong."""
    NEEDS_ATTENTION = 3
    """It did, and found something: a migration is required, or a check found problems."""


@contextlib.contextmanager
def told_failures(*given: str | Location | None) -> Iterator[None]:
    """End the command with one line when the store, or stores, at a location cannot be used."""
    try:
        yield
    except (typer.Exit, BrokenPipeError):  # told already; or whoever reads has seen enough
        raise
    except FAILURES as error:
        typer.echo(f"hermes-orm: {_reason(error, given)}", err=True)
        raise typer.Exit(Exit.FAILED) from None


def _reason(error: Exception, given: Sequence[str | Location | None]) -> str:
    """Return the error's text in one line without passwords, after the location if it is one."""
    reason = " ".join(str(getattr(error, "orig", None) or error).split()) or type(error).__name__
    if reason == MALFORMED:
        reason += "; end its writers, and save what it still gives: hermes-orm sessions recover"
    try:
        locations = [locate(each) for each in given if each is not None]
    except ValueError:
        return reason  # the location itself is wrong, and its text says how
    if isinstance(error, OSError | SQLAlchemyError):  # a driver's words; ours name no password
        for location in locations:
            if isinstance(location, PostgresLocation):
                reason = location.mask(reason)
    return f"{locations[0]}: {reason}" if len(locations) == 1 else reason
