"""Files that hosts keep beside a store, named after sessions."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Set
from contextlib import suppress
from pathlib import Path
from typing import Final

from hermes_orm.database import Database
from hermes_orm.repositories.retention.deletion import DeletionRepository

DUMP: Final = ("request_dump_", ".json")
TRANSCRIPTS: Final = (".json", ".jsonl")


def directory(database: Database, sessions_dir: str | os.PathLike[str] | None) -> Path | None:
    """Return the directory of session files; raise an error for what is no path.

    RuntimeError within a `transaction()`: files would be gone although it may still roll back.
    """
    if sessions_dir is None:
        return None
    if not isinstance(sessions_dir, str | os.PathLike):
        raise TypeError(f"sessions_dir must be a path or None, not {type(sessions_dir).__name__}")
    try:
        is_path = b"\0" not in os.fsencode(sessions_dir)
    except UnicodeError:
        is_path = False
    if not is_path:
        raise ValueError("sessions_dir holds characters that no path can have")
    database.stand_alone("removing files of sessions (sessions_dir)")
    return Path(sessions_dir)


async def remove_files(database: Database, folder: Path | None, deleted: Set[str]) -> None:
    """Remove the transcripts and request dumps of deleted sessions; errors are ignored.

    Only names that the directory lists are removed, so no id leads out of it. A request dump may
    also be that of a session with a longer id: it stays as long as there is one.
    """
    if folder is None or not deleted:
        return
    ids = {key for key in deleted if not {"/", "\\", "\0"} & set(key) and key != ".."}
    found = await asyncio.to_thread(_files, folder, ids)
    others = {key for _, longer in found for key in longer}
    if others:
        known = await database.read(
            lambda tx: DeletionRepository(tx).known(others), scope="statement"
        )
        found = [(path, longer) for path, longer in found if known.isdisjoint(longer)]
    await asyncio.to_thread(_unlink, [path for path, _ in found])


def _files(folder: Path, ids: Set[str]) -> list[tuple[Path, list[str]]]:
    """Return the files of sessions, each with the longer ids that it may belong to."""
    transcripts = {key + suffix for key in ids for suffix in TRANSCRIPTS}
    prefix, suffix = DUMP
    found: list[tuple[Path, list[str]]] = []
    with suppress(OSError):
        for name in os.listdir(folder):
            if name in transcripts:
                found.append((folder / name, []))
            elif name.startswith(prefix) and name.endswith(suffix):
                stem = name[len(prefix) : -len(suffix)]
                owners = [stem[:end] for end, sign in enumerate(stem) if sign == "_"]
                own = [number for number, owner in enumerate(owners) if owner in ids]
                if own:
                    found.append((folder / name, owners[own[-1] + 1 :]))
    return found


def _unlink(paths: Iterable[Path]) -> None:
    for path in paths:
        with suppress(OSError):
            path.unlink()
