"""`hermes-orm sessions prune`, `archive` and `delete`."""

import math
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from hermes_orm import clock
from hermes_orm.cli.display import amount, counted, line, moment, short, show, show_json, table
from hermes_orm.cli.failures import Exit
from hermes_orm.cli.filters import filtered
from hermes_orm.cli.progress import progress
from hermes_orm.cli.store import (
    AsJson,
    Db,
    DryRun,
    Yes,
    change,
    confirm,
    look,
    sessions_named,
)
from hermes_orm.rows import PruneCandidate
from hermes_orm.session_db import SessionDB

SHOWN: Final = 20
"""Candidates that are listed before a question."""
DAY: Final = 86_400

SessionsDir = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        file_okay=False,
        exists=True,
        help="Also remove their transcripts and request dumps from this directory.",
    ),
]
Names = Annotated[
    list[str],
    typer.Argument(metavar="SESSION", help="Ids, beginnings of ids, or titles."),
]
MaybeNames = Annotated[
    list[str] | None,
    typer.Argument(metavar="SESSION", help="Ids, beginnings of ids, or titles."),
]


@filtered
def prune(
    filters: dict[str, Any],
    older_than_days: Annotated[
        float,
        typer.Option(
            min=0,
            metavar="DAYS",
            help="Its latest message, or else its start, is older. Not in force beside"
            " --last-active-before or --started-before.",
        ),
    ] = 90.0,
    sessions_dir: SessionsDir = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    url: Db = None,
    as_json: AsJson = False,
) -> None:
    """Delete ended sessions that match all filters. Open and pinned ones stay.

    With them go their messages, usage, locks and unused prompts; their children become roots.
    """
    wanted = _bounded(filters, older_than_days)
    found, still_open = look(url, lambda db: _matching(db, wanted))
    result = {"matching": len(found), "open": still_open, "pruned": 0}
    if not as_json:
        _show_candidates(found, still_open)
    if found and not dry_run:
        messages = sum(session["message_count"] for session in found)
        size = f"{counted(len(found), 'session')} with {counted(messages, 'message')}"
        confirm(f"Delete {size}?", is_given=yes)
        with progress("deleting", as_json):
            folder = sessions_dir
            result["pruned"] = change(
                url, lambda db: db.prune_sessions(None, sessions_dir=folder, **wanted)
            )
    _show_result(result, "pruned", found, dry_run=dry_run, as_json=as_json)


@filtered
def archive(
    filters: dict[str, Any],
    names: MaybeNames = None,
    older_than_days: Annotated[
        float | None,
        typer.Option(
            min=0, metavar="DAYS", help="Its latest message, or else its start, is older."
        ),
    ] = None,
    undo: Annotated[
        bool, typer.Option("--undo", help="Bring the named sessions back instead.")
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    url: Db = None,
    as_json: AsJson = False,
) -> None:
    """Archive the named sessions, or ended ones that match all filters; lists leave them out.

    A compressed conversation is archived as a whole.
    """
    has_filters = bool(filters) or older_than_days is not None
    if bool(names) == has_filters or (undo and not names):
        raise typer.BadParameter(
            "name sessions, or give a filter such as --older-than-days 30; --undo needs names"
        )
    if names:
        _archive_named(url, names, archived=not undo, dry_run=dry_run, as_json=as_json)
        return
    wanted = {"archived": False, **_bounded(filters, older_than_days)}
    found, still_open = look(url, lambda db: _matching(db, wanted))
    result = {"matching": len(found), "open": still_open, "archived": 0}
    if not as_json:
        _show_candidates(found, still_open)
    if found and not dry_run:
        confirm(f"Archive {counted(len(found), 'session')}?", is_given=yes)
        result["archived"] = change(url, lambda db: db.archive_sessions(None, **wanted))
    _show_result(result, "archived", found, dry_run=dry_run, as_json=as_json)


def delete(
    names: Names,
    sessions_dir: SessionsDir = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    url: Db = None,
    as_json: AsJson = False,
) -> None:
    """Delete the named sessions with their delegates, whatever their state.

    With them go their messages, usage, locks and unused prompts; other children become roots.
    """
    targets, rows = look(url, lambda db: _targets(db, names))
    if not as_json:
        _show_targets(targets, rows)
    deleted: list[str] = []
    if not dry_run:
        confirm(f"Delete {counted(len(rows), 'session')}?", is_given=yes)
        deleted = change(url, lambda db: _delete(db, targets, sessions_dir))
    result = {"sessions": [row["id"] for row in rows], "deleted": len(deleted)}
    if as_json:
        show_json(result)
    elif not dry_run:
        show(f"{counted(len(deleted), 'session')} deleted.")
    if not dry_run and len(deleted) < len(rows):
        typer.echo(
            "hermes-orm: some had new delegates, or were deleted meanwhile: look again", err=True
        )
        raise typer.Exit(Exit.NEEDS_ATTENTION)


def _bounded(filters: dict[str, Any], older_than_days: float | None) -> dict[str, Any]:
    """Return the filters with the age as a time, so that what is shown is what is deleted."""
    if older_than_days is None or {"last_active_before", "started_before"} & filters.keys():
        return filters
    if not math.isfinite(older_than_days):
        raise typer.BadParameter("--older-than-days needs a finite number")
    return {**filters, "last_active_before": clock.now() - older_than_days * DAY}


async def _matching(db: SessionDB, wanted: dict[str, Any]) -> tuple[list[PruneCandidate], int]:
    found = await db.list_prune_candidates(None, **wanted)
    return found, await db.count_open_prune_matches(None, **wanted)


def _show_candidates(found: list[PruneCandidate], still_open: int) -> None:
    rows = (
        (
            line(session["id"]),
            moment(session["last_active"]),
            amount(session["message_count"]),
            short(session["source"]),
            line(session["title"]),
        )
        for session in found[:SHOWN]
    )
    if found:
        columns = ("session", "last active", "messages", "source", "title")
        show(table(columns, rows, right=("messages",), optional=("source", "messages")))
    if len(found) > SHOWN:
        show(f"... and {len(found) - SHOWN:,} more, all after these; --json lists them")
    if still_open:
        show(f"{counted(still_open, 'more session')} would match but did not end yet: left alone.")


def _show_result(
    result: dict[str, Any],
    done: str,
    found: list[PruneCandidate],
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    if as_json:
        show_json({**result, "sessions": found})
    elif not found:
        show("No session matches.")
    elif dry_run:
        show(f"{counted(len(found), 'session')} would be {done}.")
    else:
        show(f"{counted(result[done], 'session')} {done}.")


def _archive_named(
    url: str | None, names: list[str], *, archived: bool, dry_run: bool, as_json: bool
) -> None:
    async def mark(db: SessionDB) -> list[str]:
        ids = await sessions_named(db, names)
        if not dry_run:
            async with db.transaction() as unit:
                for session_id in ids:
                    await unit.set_session_archived(session_id, archived)
        return ids

    ids = look(url, mark) if dry_run else change(url, mark)
    word = "archived" if archived else "brought back"
    if as_json:
        show_json({"sessions": ids, "archived": 0 if dry_run else len(ids)})
    else:
        would = "would be " if dry_run else ""
        show(*(f"{line(session_id)} {would}{word}" for session_id in ids))


async def _targets(
    db: SessionDB, names: list[str]
) -> tuple[dict[str, list[str]], list[dict[str, Any]]]:
    """Return what deleting the named sessions deletes, by session, and the rows of all."""
    ids = await sessions_named(db, names)
    targets = {session_id: await db.get_session_delete_targets(session_id) for session_id in ids}
    implied = {t for session_id, found in targets.items() for t in found if t != session_id}
    chosen = {session_id: targets[session_id] for session_id in ids if session_id not in implied}
    every = dict.fromkeys(target for found in chosen.values() for target in found)
    rows = [row for target in every if (row := await db.get_session(target))]
    return chosen, [dict(row) for row in rows]


async def _delete(
    db: SessionDB, targets: dict[str, list[str]], sessions_dir: Path | None
) -> list[str]:
    return [
        target
        for session_id, expected in targets.items()
        if await db.delete_session(session_id, sessions_dir, expected_delete_ids=expected)
        for target in expected
    ]


def _show_targets(targets: dict[str, list[str]], rows: list[dict[str, Any]]) -> None:
    columns = ("session", "started", "messages", "state", "title")
    told = (_target(row, targets) for row in rows)
    show(table(columns, told, right=("messages",), optional=("started",)))


def _target(row: dict[str, Any], targets: dict[str, list[str]]) -> tuple[str, ...]:
    states = [
        "ended" if row["ended_at"] else "open",
        *(flag for flag in ("pinned", "archived") if row[flag]),
        *(["delegate"] if row["id"] not in targets else []),
    ]
    return (
        line(row["id"]),
        moment(row["started_at"]),
        amount(row["message_count"]),
        ", ".join(states),
        line(row["title"]),
    )
