"""Operations on a store whose disk is full, each on a copy of its own.

`python -m tests.reliability.filling FOLDER LIMIT ROOM...` prints a line of JSON per run: operation,
bytes of room, what the operation raised (None: the room sufficed), and how many messages it had
acknowledged. What must hold after it is asserted here.
"""

import asyncio
import itertools
import json
import os
import resource
import shutil
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from hermes_orm import SessionDB, classify_persistence_error
from hermes_orm.cli import app
from hermes_orm.dialects.sqlite import driver
from hermes_orm.dialects.sqlite.online_backup import back_up
from hermes_orm.portability.copying import copy_database
from tests.contract.turns import user
from tests.journal import use_journal

SENT = 15
CHUNK = 5
SEEDED = 20
INDEXES = ("messages_fts", "messages_fts_trigram")


class FileSize:
    """No file of this process can grow beyond a size: SQLite takes that for a failing disk."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    def leave(self, room: int, *, for_new_files: bool) -> None:
        """Leave so many bytes for new content."""
        sizes = [0] if for_new_files else [file.stat().st_size for file in self._files()]
        self._set(max(sizes) + room)

    def lift(self) -> None:
        self._set(resource.getrlimit(resource.RLIMIT_FSIZE)[1])

    def _files(self) -> list[Path]:
        return [file for file in self._folder.rglob("*") if file.is_file()]

    def _set(self, size: int) -> None:
        resource.setrlimit(
            resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1])
        )


class SmallDisk:
    """A file system of its own, most of which a ballast takes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ballast = folder / "ballast"

    def leave(self, room: int, *, for_new_files: bool) -> None:
        """Leave so many bytes for new content."""
        free = shutil.disk_usage(self._folder).free
        with self._ballast.open("wb") as file:
            file.write(bytes(max(0, free - room)))

    def lift(self) -> None:
        self._ballast.unlink(missing_ok=True)


@dataclass
class Case:
    """One run: the store in its file, and the numbers of the messages it has acknowledged."""

    db: SessionDB
    path: Path
    acknowledged: list[int] = field(default_factory=list)


def sent() -> list[dict[str, Any]]:
    return [user(f"{number} " + "cistern " * 1000) for number in range(SENT)]


async def append(case: Case) -> None:
    for number, message in enumerate(sent()):
        await case.db.append_message("s", **message)
        case.acknowledged.append(number)


async def batch(case: Case) -> None:
    await case.db.append_messages_batch("s", sent())
    case.acknowledged += range(SENT)


async def chunks(case: Case) -> None:
    await case.db.append_messages_batch("s", sent(), chunk_rows=CHUNK)
    case.acknowledged += range(SENT)


async def together(case: Case) -> None:
    async with case.db.transaction() as unit:
        for message in sent():
            await unit.append_message("s", **message)
    case.acknowledged += range(SENT)


async def checkpoint(case: Case) -> None:
    await append(case)
    await case.db.close()


async def compact(case: Case) -> None:
    summary = [user("summary " + "basin " * 20_000)]
    await case.db.archive_and_compact("c", summary, watermark=SEEDED * 2, lock_holder="h")


async def delete(case: Case) -> None:
    await case.db.delete_session("c")


async def rebuild(case: Case) -> None:
    await case.db.rebuild_fts()


async def vacuum(case: Case) -> None:
    await case.db.vacuum()


async def export(case: Case) -> None:
    to = case.path.parent / "out.jsonl"
    command = ["sessions", "export", "--db", str(case.path), "--to", str(to)]
    done = await asyncio.to_thread(CliRunner().invoke, app, command)
    if done.exit_code:
        raise OSError(done.stderr)


async def backup(case: Case) -> None:
    to = case.path.parent / "copy.db"
    await asyncio.to_thread(back_up, case.path, to, lambda done, total: None)
    to.unlink()


async def copy(case: Case) -> None:
    await copy_database(case.path, case.path.parent / "copied.db")


OPERATIONS: dict[Callable[[Case], Awaitable[None]], str] = {
    append: "one by one",
    batch: "all",
    chunks: "chunks",
    together: "all",
    checkpoint: "one by one",
    compact: "nothing",
    delete: "nothing",
    rebuild: "nothing",
    vacuum: "nothing",
    export: "a file",
    backup: "a file",
    copy: "a file",
}
"""Operation -> how the messages that it sends are committed, or that it writes another file."""


async def seed(path: Path, mode: str) -> None:
    use_journal(path, mode)
    async with SessionDB(path) as db:
        for session in ("s", "c"):
            await db.create_session(session, "cli")
            texts = [f"seed {number} " + "aqueduct " * 300 for number in range(SEEDED)]
            await db.append_messages_batch(session, [user(text) for text in texts])
        await db.try_acquire_compression_lock("c", "h", 86_400)


def contents(path: Path) -> dict[str, list[str]]:
    """Return the first words of the live messages of each session, of a file that is sound."""
    with closing(driver.module().connect(str(path), isolation_level=None)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        for index in INDEXES:
            connection.execute(f"INSERT INTO {index} ({index}, rank) VALUES ('integrity-check', 1)")
        counted = dict(connection.execute("SELECT id, message_count FROM sessions"))
        found: dict[str, list[str]] = {session: [] for session in counted}
        for session, text in connection.execute(
            "SELECT session_id, content FROM messages WHERE active = 1 ORDER BY id"
        ):
            found[session].append(" ".join(text.split()[:2]))
        assert {session: len(texts) for session, texts in found.items()} == counted
    return found


def check(case: Case, commits: str, before: dict[str, list[str]]) -> None:
    """The file holds what was acknowledged, and nothing of what was not."""
    found = contents(case.path)
    kept, new = found["s"][:SEEDED], found["s"][SEEDED:]
    assert kept == before["s"]
    assert new == [f"{number} cistern" for number in range(len(new))]
    if commits == "chunks":
        assert len(new) % CHUNK == 0
        assert len(new) >= len(case.acknowledged)
    else:
        assert len(new) == len(case.acknowledged), (len(new), case.acknowledged)
    if commits != "nothing":
        assert found["c"] == before["c"]


async def use(db: SessionDB) -> None:
    """The store answers, writes and finds."""
    await db.append_message("s", "user", "afterwards")
    rows = await db.get_messages("s")
    assert rows[-1]["content"] == "afterwards"
    assert len(await db.search_messages("afterwards")) == 1


async def run_one(
    operation: Callable[[Case], Awaitable[None]],
    path: Path,
    limit: FileSize | SmallDisk,
    room: int,
) -> dict[str, Any]:
    commits = OPERATIONS[operation]
    before = contents(path)
    case = Case(SessionDB(path), path)
    await case.db.get_session("s")
    limit.leave(room, for_new_files=commits == "a file")
    raised: Any = None
    try:
        await operation(case)
    except BaseException as error:  # noqa: BLE001  (told to the test)
        raised = error
    finally:
        limit.lift()
    if case.db.database._is_closed:
        case.db = SessionDB(path)
    acknowledged = len(case.acknowledged)
    names = {file.name for file in path.parent.iterdir()}
    if raised is not None:
        check(case, commits, before)
        if commits == "nothing":
            assert contents(path) == before
        if operation in (export, backup):
            assert names <= {path.name, f"{path.name}-wal", f"{path.name}-shm"}, names
    await use(case.db)
    if raised is not None and operation not in (append, chunks, checkpoint):
        await operation(case)
    await case.db.close()
    contents(path)
    return {
        "operation": operation.__name__,
        "room": room,
        "error": raised and f"{type(raised).__name__}: {raised}",
        "cause": raised and classify_persistence_error(raised),
        "acknowledged": acknowledged,
    }


async def main(folder: Path, limit: FileSize | SmallDisk, rooms: list[int]) -> None:
    stores = folder / "stores"
    stores.mkdir(parents=True)
    for mode in ("delete", "wal"):
        template = folder / f"{mode}.db"
        await seed(template, mode)
        for operation, room in itertools.product(OPERATIONS, rooms):
            path = stores / "state.db"
            shutil.copyfile(template, path)
            try:
                told = json.dumps(await run_one(operation, path, limit, room))
            except BaseException as error:
                error.add_note(f"{operation.__name__}, {room} bytes of room, {mode}")
                raise
            sys.stdout.write(f"{told}\n")
            for file in stores.iterdir():
                file.unlink()


if __name__ == "__main__":
    place, kind, *room_sizes = sys.argv[1:]
    os.environ["HERMES_HOME"] = f"{place}/home"
    kinds: dict[str, type[FileSize | SmallDisk]] = {"file-size": FileSize, "small-disk": SmallDisk}
    room_list = [int(size) for size in room_sizes]
    asyncio.run(main(Path(place), kinds[kind](Path(place) / "stores"), room_list))
