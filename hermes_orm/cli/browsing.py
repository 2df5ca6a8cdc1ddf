"""`hermes-orm sessions list`, `show` and `search`."""

from collections.abc import AsyncIterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.rule import Rule
from rich.text import Text

from hermes_orm.cli.display import amount, line, moment, short, show, show_json, snippet, table
from hermes_orm.cli.store import AsJson, Db, Name, look, session_named
from hermes_orm.cli.transcripts import heading, transcript
from hermes_orm.rows import MessageRow, RichSessionRow, SearchHit, SessionRow
from hermes_orm.session_db import SessionDB

PAGE: Final = 500
"""Messages that are read and printed at a time."""

LISTED: Final = (
    "session",
    "last active",
    "messages",
    "source",
    "model",
    "state",
    "title or beginning",
)

Limit = Annotated[int, typer.Option("--limit", "-n", min=1, help="How many at most.")]
Offset = Annotated[int, typer.Option(min=0, help="How many to skip.")]
Sources = Annotated[
    list[str] | None,
    typer.Option("--source", help="Only what came from there: cli, telegram ... (repeatable)"),
]
Excluded = Annotated[
    list[str] | None, typer.Option("--exclude-source", help="Not what came from there.")
]


class Order(StrEnum):
    """What a list of sessions is sorted by."""

    ACTIVITY = "activity"
    START = "start"


class Sort(StrEnum):
    """What hits are sorted by."""

    RELEVANCE = "relevance"
    NEWEST = "newest"
    OLDEST = "oldest"


def list_sessions(
    sources: Sources = None,
    excluded: Excluded = None,
    workspace: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Only those that worked there or below; `.` is here."),
    ] = None,
    query: Annotated[
        str | None, typer.Option("--query", "-q", help="Only with this in id, title or preview.")
    ] = None,
    order: Annotated[Order, typer.Option("--by", help="The latest of which comes first.")] = (
        Order.ACTIVITY
    ),
    archived: Annotated[bool, typer.Option("--archived", help="Only archived ones.")] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Archived and hidden ones, delegates and branches, too.")
    ] = False,
    limit: Limit = 20,
    offset: Offset = 0,
    url: Db = None,
    as_json: AsJson = False,
) -> None:
    """List sessions, the last active first; a compressed conversation is one line."""

    async def listed(db: SessionDB) -> list[RichSessionRow]:
        return await db.list_sessions_rich(
            sources=sources or None,
            exclude_sources=excluded or None,
            cwd_prefix=_directory(workspace),
            search_query=query,
            limit=limit + 1,
            offset=offset,
            include_children=everything,
            include_archived=everything,
            include_hidden=everything,
            archived_only=archived,
            order_by_last_active=order is Order.ACTIVITY,
            compact_rows=True,
        )

    found = look(url, listed)
    page, has_more = found[:limit], len(found) > limit
    if as_json:
        show_json({"sessions": page, "more": has_more})
        return
    if not page:
        show("No session matches." if not offset else "No more sessions match.")
        return
    optional = ("model", "source", "messages")
    show(table(LISTED, map(_listed, page), right=("messages",), optional=optional))
    if has_more:
        show(Text(f"More match: --offset {offset + limit} shows the next.", "dim"))


def show_session(
    name: Name,
    last: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Only the last messages.")
    ] = None,
    around: Annotated[
        int | None, typer.Option(metavar="ID", help="Only the messages around this one: #ID.")
    ] = None,
    lineage: Annotated[
        bool, typer.Option("--lineage", help="The whole compressed conversation, root first.")
    ] = False,
    undone: Annotated[
        bool, typer.Option("--undone", help="Undone and archived messages, too.")
    ] = False,
    full: Annotated[
        bool, typer.Option("--full", help="Don't shorten tool calls, results and reasoning.")
    ] = False,
    url: Db = None,
    as_json: AsJson = False,
) -> None:
    """Show a session and its transcript."""
    if (last is not None) + (around is not None) + lineage > 1:
        raise typer.BadParameter("give one of --last, --around and --lineage")

    async def answered(db: SessionDB) -> None:
        session_id = await session_named(db, name)
        ids = await db.get_compression_lineage(session_id) if lineage else [session_id]
        collected: list[dict[str, Any]] = []
        for shown_id in ids:
            session = await db.get_session(shown_id)
            if session is None:
                continue  # deleted meanwhile
            pages = _pages(db, shown_id, last=last, around=around, undone=undone)
            if as_json:
                collected.append({**session, "messages": [m async for page in pages for m in page]})
            else:
                await _print(session, pages, is_full=full)
        if as_json:
            show_json({"sessions": collected})

    look(url, answered)


def search(
    query: Annotated[
        str, typer.Argument(help='Words, "phrases", pre*, AND, OR, NOT; quoted for the shell.')
    ],
    sources: Sources = None,
    excluded: Excluded = None,
    roles: Annotated[
        list[str] | None, typer.Option("--role", help="Only messages of user, assistant, tool ...")
    ] = None,
    sort: Annotated[Sort, typer.Option(help="What comes first.")] = Sort.RELEVANCE,
    undone: Annotated[bool, typer.Option("--undone", help="Undone messages, too.")] = False,
    limit: Limit = 20,
    offset: Offset = 0,
    url: Db = None,
    as_json: AsJson = False,
) -> None:
    """Search the messages of all sessions."""

    async def found(db: SessionDB) -> list[SearchHit]:
        return await db.search_messages(
            query,
            source_filter=sources or None,
            exclude_sources=excluded or None,
            role_filter=roles or None,
            sort=None if sort is Sort.RELEVANCE else sort.value,
            include_inactive=undone,
            limit=limit + 1,
            offset=offset,
        )

    hits = look(url, found)
    page, has_more = hits[:limit], len(hits) > limit
    if as_json:
        show_json({"hits": page, "more": has_more})
        return
    if not page:
        show("Nothing was found.")
        return
    rows = (
        (
            line(hit["session_id"]),
            f"#{hit['id']}",
            moment(hit["timestamp"]),
            short(hit["role"]),
            snippet(hit["snippet"]),
        )
        for hit in page
    )
    columns = ("session", "message", "when", "who", "text")
    found_at = table(columns, rows, optional=("when", "who"), wraps=True)
    first = page[0]
    hint = (
        f"In context: hermes-orm sessions show {line(first['session_id'])} --around {first['id']}"
    )
    more = [Text(f"More was found: --offset {offset + limit}.", "dim")] if has_more else []
    show(found_at, *more, Text(hint, "dim"))


def _directory(given: str | None) -> str | None:
    """Return a directory as it is recorded; relative ones are below the current one."""
    if given is None or not given.startswith((".", "~")):
        return given
    return str(Path(given).expanduser().resolve())


def _listed(session: RichSessionRow) -> tuple[str | Text, ...]:
    return (
        line(session["id"]),
        moment(session["last_active"]),
        amount(session["message_count"]),
        short(session["source"]),
        short(session["model"]),
        _state(session),
        line(session["title"]) or Text(line(session["preview"]), "dim"),
    )


def _state(session: RichSessionRow) -> str:
    flags = [flag for flag in ("archived", "pinned", "hidden") if session[flag]]
    return ", ".join([*([] if session["ended_at"] else ["open"]), *flags])


async def _pages(
    db: SessionDB, session_id: str, *, last: int | None, around: int | None, undone: bool
) -> AsyncIterator[list[MessageRow]]:
    """Yield the messages that were asked for, some at a time."""
    if around is not None:
        found = (await db.get_messages_around(session_id, around))["window"]
        if not found:
            raise ValueError(f"--around {around}: the session has no such message")
        yield found
    elif last is not None:
        yield await db.get_messages(session_id, include_inactive=undone, limit=last, latest=True)
    else:
        after = 0
        while page := await db.get_messages(
            session_id, include_inactive=undone, limit=PAGE, after_id=after
        ):
            yield page
            after = page[-1]["id"]


async def _print(
    session: SessionRow, pages: AsyncIterator[list[MessageRow]], *, is_full: bool
) -> None:
    show(heading(session), Rule(style="dim"))
    async for page in pages:
        show(*transcript(page, is_full=is_full))
