"""`hermes-orm sessions import`."""

import contextlib
import json
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final

import typer

from hermes_orm.cli.display import counted, line, show, show_json
from hermes_orm.cli.failures import Exit
from hermes_orm.cli.progress import Progress, progress
from hermes_orm.cli.store import AsJson, Db, DryRun, change, look
from hermes_orm.repositories.portability.entries import (
    IMPORT_BYTES,
    MOST_MESSAGES_IN_ALL,
    MOST_SESSIONS,
)
from hermes_orm.services.imports import check_sessions
from hermes_orm.session_db import SessionDB

SHOWN: Final = 20
"""Rejected records that are listed for a person."""


@dataclass(frozen=True, slots=True)
class Record:
    """An entry of a file: its number from 0, its size, and why it cannot be read at all."""

    index: int
    value: Any
    size: int
    fault: str | None = None

    @property
    def messages(self) -> int:
        """How many messages it brings."""
        found = self.value.get("messages") if isinstance(self.value, dict) else None
        return len(found) if isinstance(found, list) else 0

    def rejected(self, error: dict[str, Any]) -> dict[str, Any]:
        """Return an error about the record with its number in the file."""
        return {**error, "index": self.index}


@dataclass
class Outcome:
    """What came of an import."""

    read: int = 0
    imported: int = 0
    skipped: int = 0
    detached: int = 0
    rejected: list[dict[str, Any]] = field(default_factory=list)


def import_sessions(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="JSON Lines or JSON, as `sessions export` writes; `-` is standard input.",
            allow_dash=True,
        ),
    ],
    skip_invalid: Annotated[
        bool, typer.Option("--skip-invalid", help="Leave out rejected records, import the rest.")
    ] = False,
    dry_run: DryRun = False,
    url: Db = None,
    as_json: AsJson = False,
) -> None:
    """Store exported sessions; those that exist are skipped, so it can be repeated.

    The whole file is checked first. When a record is rejected nothing is written; each is reported
    with its number, from 0, and the reason. Sessions are stored some hundred at a time.
    """
    is_lines = path.suffix in (".jsonl", ".ndjson")
    outcome = Outcome()

    async def imported(db: SessionDB) -> None:
        with _opened(path) as file, progress("checking", as_json) as shown:
            for batch in batches(records(file, shown, is_lines=is_lines)):
                outcome.read += len(batch)
                outcome.rejected += await _faults(db, batch)
            if dry_run or (outcome.rejected and not skip_invalid):
                return
            left_out = {item["index"] for item in outcome.rejected}
            shown.step("importing")
            for batch in batches(records(file, shown, is_lines=is_lines)):
                chosen = [record for record in batch if record.index not in left_out]
                if not await _store(db, chosen, outcome, goes_on=skip_invalid):
                    return

    if str(path) != "-" and not path.is_file():
        raise typer.BadParameter(f"there is no file {path}")
    if dry_run:
        look(url, imported)
    else:
        change(url, imported, creates=True)
    _report(outcome, dry_run=dry_run, as_json=as_json)
    if outcome.rejected:
        raise typer.Exit(Exit.NEEDS_ATTENTION if skip_invalid or dry_run else Exit.FAILED)


async def _faults(db: SessionDB, batch: list[Record]) -> list[dict[str, Any]]:
    """Return what is wrong with the records of a batch."""
    unread = [{"index": r.index, "error": r.fault} for r in batch if r.fault is not None]
    read = [record for record in batch if record.fault is None]
    found = await check_sessions(db.database, [record.value for record in read])
    rejected = [read[item["index"]].rejected(dict(item)) for item in found]
    return sorted([*unread, *rejected], key=lambda item: int(item["index"]))


async def _store(db: SessionDB, batch: list[Record], outcome: Outcome, *, goes_on: bool) -> bool:
    """Import the records of a batch; False when some are rejected only now, and it must not go on.

    That is, when another record or program has taken a title meanwhile.
    """
    while batch:
        result = await db.import_sessions([record.value for record in batch])
        outcome.imported += result["imported"]
        outcome.skipped += result["skipped"]
        outcome.detached += result["detached"]
        if result["ok"]:
            break
        outcome.rejected += [batch[item["index"]].rejected(dict(item)) for item in result["errors"]]
        if not goes_on:
            return False
        late = {item["index"] for item in result["errors"]}
        batch = [record for number, record in enumerate(batch) if number not in late]
    return True


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """Yield a file that can be read twice."""
    if str(path) != "-":
        with path.open("rb") as file:
            yield file
        return
    with tempfile.TemporaryFile() as copy:
        shutil.copyfileobj(typer.get_binary_stream("stdin"), copy)
        yield copy


def records(file: BinaryIO, shown: Progress, *, is_lines: bool) -> Iterator[Record]:
    """Yield the entries of a file: of JSON Lines one at a time, of a JSON document as a whole."""
    total = file.seek(0, 2)
    file.seek(0)
    if not is_lines:
        first = next((text for text in file if text.strip()), b"[]")
        is_lines = isinstance(_parsed(0, first).value, dict)
        file.seek(0)
    if is_lines:
        done = 0
        for index, text in enumerate(text for text in file if text.strip()):
            done += len(text)
            yield _parsed(index, text)
            shown.share(done, total)
        return
    try:
        document = json.load(file)
    except ValueError as error:
        raise ValueError(f"the file is neither JSON nor JSON Lines: {error}") from None
    for index, value in enumerate(document if isinstance(document, list) else [document]):
        yield Record(index, value, len(json.dumps(value)))


def _parsed(index: int, text: bytes) -> Record:
    try:
        return Record(index, json.loads(text), len(text))
    except (ValueError, RecursionError) as error:
        return Record(index, None, len(text), fault=f"the line is no JSON: {error}")


def batches(found: Iterable[Record]) -> Iterator[list[Record]]:
    """Yield as many records as one import takes."""
    batch: list[Record] = []
    size = messages = 0
    for record in found:
        size += record.size
        messages += record.messages
        is_full = size > IMPORT_BYTES or messages > MOST_MESSAGES_IN_ALL
        if batch and (is_full or len(batch) == MOST_SESSIONS):
            yield batch
            batch, size, messages = [], record.size, record.messages
        batch.append(record)
    if batch:
        yield batch


def _report(outcome: Outcome, *, dry_run: bool, as_json: bool) -> None:
    if as_json:
        show_json(asdict(outcome))
        return
    for item in outcome.rejected[:SHOWN]:
        name = f" ({line(item['session_id'])})" if "session_id" in item else ""
        typer.echo(f"record {item['index']}{name}: {line(item['error'])}", err=True)
    if len(outcome.rejected) > SHOWN:
        typer.echo(f"... and {len(outcome.rejected) - SHOWN:,} more; --json lists them", err=True)
    if outcome.rejected:
        hint = "" if outcome.imported or dry_run else "; nothing was written (--skip-invalid)"
        typer.echo(
            f"hermes-orm: {counted(len(outcome.rejected), 'record')} rejected{hint}", err=True
        )
    if dry_run:
        accepted = outcome.read - len(outcome.rejected)
        show(f"{counted(accepted, 'session')} would be imported, unless they exist already.")
    else:
        skipped = f", {outcome.skipped:,} existed already" if outcome.skipped else ""
        detached = f", {outcome.detached:,} without their parents" if outcome.detached else ""
        show(f"{counted(outcome.imported, 'session')} imported{skipped}{detached}.")
