"""`hermes-orm demo`."""

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from hermes_orm.cli.failures import told_failures
from hermes_orm.demo import play, show


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
    with told_failures(url), _store(url, keep) as location:
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
