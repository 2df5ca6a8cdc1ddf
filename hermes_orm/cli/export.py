"""`hermes-orm sessions export`."""

import contextlib
import os
from collections.abc import AsyncIterator, Iterator
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final

import typer

from hermes_orm.cli.display import counted, json_text, size
from hermes_orm.cli.progress import progress
from hermes_orm.cli.store import Db, look, session_named
from hermes_orm.database import Transaction
from hermes_orm.repositories.portability.exports import ExportRepository
from hermes_orm.session_db import SessionDB

NO_LIMIT: Final = 0
"""Of messages: the limit of the store's own operation protects agents."""


class Format(StrEnum):
    """How sessions are written."""

    JSONL = "jsonl"
    JSON = "json"
    MARKDOWN = "markdown"


def export(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SESSION", help="Ids, beginnings of ids, or titles. Default: all sessions."
        ),
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option(
            "--to", "-o", metavar="FILE", dir_okay=False, help="Default: standard output."
        ),
    ] = None,
    format_: Annotated[
        Format,
        typer.Option("--format", "-f", help="One JSON object a line, a JSON array, or Markdown."),
    ] = Format.JSONL,
    lineage: Annotated[
        bool,
        typer.Option("--lineage", help="The whole compressed conversations, their roots first."),
    ] = False,
    source: Annotated[
        str | None, typer.Option(help="Without names: only what came from there.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing FILE.")] = False,
    url: Db = None,
) -> None:
    """Write sessions with their live messages; `sessions import` reads JSON and JSON Lines.

    A store is read in portions, parents before their children, and can be used meanwhile.
    """
    if (names and source is not None) or (lineage and not names):
        raise typer.BadParameter("--source selects among all sessions, --lineage needs names")
    if to is not None and to.exists() and not force:
        raise typer.BadParameter(f"{to} exists; --force replaces it")

    async def written(db: SessionDB) -> int:
        if names:
            total = len(names)
            chosen = _named(db, [await session_named(db, n) for n in names], is_whole=lineage)
        else:
            total = await db.session_count(source, include_archived=True)
            chosen = db.iter_export(source, NO_LIMIT)
        count = 0
        with progress("exporting", is_quiet=to is None) as shown, _opened(to) as file:
            async for session in chosen:
                file.write(_piece(session, format_, is_first=count == 0))
                count += 1
                shown.share(count, max(count, total))
            if format_ is Format.JSON:
                file.write(b"\n]\n" if count else b"[]\n")
        return count

    count = look(url, written)
    if to is not None:
        typer.echo(f"{counted(count, 'session')}, {size(to.stat().st_size)}: {to}", err=True)


def _piece(session: Any, format_: Format, *, is_first: bool) -> bytes:
    """Return a session as it is written after others, or as the first."""
    if format_ is Format.MARKDOWN:
        from hermes_orm.services.markdown import session_markdown

        text = session_markdown(session).rstrip() + "\n"
        return (text if is_first else f"\n---\n\n{text}").encode(errors="replace")
    text = json_text(session)
    if format_ is Format.JSONL:
        return f"{text}\n".encode()
    return (("[\n" if is_first else ",\n") + text).encode()


async def _named(db: SessionDB, ids: list[str], *, is_whole: bool) -> AsyncIterator[Any]:
    """Yield sessions, each once; a whole conversation is read as of one moment."""
    done: set[str] = set()
    for session_id in ids:
        for session in await db.database.read(partial(_exported, session_id, is_whole)):
            if session["id"] not in done:
                done.add(session["id"])
                yield session


def _exported(session_id: str, is_whole: bool, tx: Transaction) -> list[Any]:
    repository = ExportRepository(tx)
    if is_whole:
        whole = repository.export_session_lineage(session_id, NO_LIMIT)
        return list(whole["segments"]) if whole else []
    session = repository.export_session(session_id, NO_LIMIT)
    return [session] if session else []


@contextlib.contextmanager
def _opened(to: Path | None) -> Iterator[BinaryIO]:
    """Yield standard output, or a file that gets its name when it is complete."""
    if to is None:
        yield typer.get_binary_stream("stdout")
        return
    partial = to.with_name(f"{to.name}.partial")
    partial.unlink(missing_ok=True)  # with it goes whatever rights it had, or where it led to
    try:
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            yield file
        partial.replace(to)
    finally:
        partial.unlink(missing_ok=True)
