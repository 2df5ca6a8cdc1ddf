"""Importing sessions: all of a call are checked and encoded before its one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from operator import itemgetter
from sqlite3 import IntegrityError
from typing import Any

from hermes_orm.database import Database, Transaction
from hermes_orm.dialects.prepared import Params
from hermes_orm.repositories.portability.entries import MOST_SESSIONS, Entry, Inspection
from hermes_orm.repositories.portability.imports import ImportRepository, rejection
from hermes_orm.repositories.portability.rows import ImportResult, RejectedSession
from hermes_orm.services.messages import encoded, taken


async def import_sessions(database: Database, sessions: list[Any]) -> ImportResult:
    """Store sessions that were exported here or elsewhere, with their messages, all or none.

    Sessions that exist are skipped, untouched. When an entry is rejected nothing is stored:
    `errors` tells the index of each, its id and the reason. Lone surrogates are kept in structured
    content, tool calls and other JSON; an id or another text with one is rejected. A session whose
    parent neither exists nor is imported, or descends from it, is stored without one and counted as
    `detached`. Messages get new ids and are live. Counters are those of the messages; peer, flags
    other than `archived`, activity and usage rows are not imported. ValueError for no list, or more
    than 500 entries.
    """
    inspection = await _inspected(sessions)
    if inspection.rejected:
        return rejection(await _rejected(database, inspection))
    entries = list(inspection.accepted.values())
    rows = await taken(_rows(database, entries))
    messages = {key: list(of_one) for key, of_one in groupby(rows, itemgetter("session_id"))}
    result = await _store(database, entries, messages)
    for session_id in result.get("imported_ids", ()):
        database.tombstones.lift(session_id)
    return result


async def check_sessions(database: Database, sessions: list[Any]) -> list[RejectedSession]:
    """Return what `import_sessions` would reject now; nothing is written."""
    return await _rejected(database, await _inspected(sessions))


async def _inspected(sessions: list[Any]) -> Inspection:
    if not isinstance(sessions, list):
        raise ValueError("sessions must be a list")  # noqa: TRY004  (as hosts know it)
    if len(sessions) > MOST_SESSIONS:
        raise ValueError(f"sessions must contain at most {MOST_SESSIONS} entries")
    inspection = Inspection()
    await taken(inspection.steps(sessions))
    return inspection


async def _rejected(database: Database, inspection: Inspection) -> list[RejectedSession]:
    """Return what the inspection rejected, and whose title belongs to another session."""
    entries = list(inspection.accepted.values())

    def titles(tx: Transaction) -> list[RejectedSession]:
        repository = ImportRepository(tx)
        return repository.rejected(entries, repository.known(entries))

    return [*inspection.rejected, *(await database.read(titles) if entries else [])]


def _rows(database: Database, entries: Iterable[Entry]) -> Iterator[Params]:
    for entry in entries:
        for row in encoded(database, entry.messages):
            yield {**row, "session_id": entry.id}


async def _store(
    database: Database, entries: Sequence[Entry], messages: Mapping[str, Sequence[Params]]
) -> ImportResult:
    async def stored() -> ImportResult:
        return await database.write(
            lambda tx: ImportRepository(tx).import_sessions(entries, messages)
        )

    # Another process took an id or a title, or deleted a parent, just now: look again.
    if not database.in_transaction:
        with suppress(IntegrityError):
            return await stored()
    return await stored()
