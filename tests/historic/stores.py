"""Files of earlier releases, and what their sidecars say a reader must find in them."""

import hashlib
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from hermes_orm.dialects.sqlite.ddl import OWN_OBJECTS
from tests.migrations.catalogue import POSTGRES
from tests.raw import Raw

JSON_TEXTS = ("reasoning_details", "codex_reasoning_items", "codex_message_items")
"""Columns of messages that are returned as stored; the sidecars have them decoded."""

FTS_INDEXES = ("messages_fts", "messages_fts_trigram")


@dataclass(frozen=True)
class HistoricFile:
    """A copy of a file in a folder of its own, with its sidecar."""

    path: Path
    sidecar: dict[str, Any]

    @property
    def folder(self) -> dict[str, str]:
        """Digest of each file in the folder."""
        paths = self.path.parent.iterdir()
        return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}

    @property
    def expected_sessions(self) -> list[dict[str, Any]]:
        """The sidecar's sessions without what is no key of a session."""
        sessions = self.sidecar["sessions"]
        return [{k: s[k] for k in s if k != "created_source"} for s in sessions]

    async def definitions(self) -> list[tuple[Any, ...]]:
        """Return the catalogue without our own objects: what other programs rely on."""
        rows = await Raw(str(self.path)).fetch(
            "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name"
        )
        return [row for row in rows if not OWN_OBJECTS & {row[1], row[2]}]

    async def check(self) -> None:
        """Have SQLite and FTS5 compare everything that they store twice."""
        raw = Raw(str(self.path))
        assert await raw.fetch("PRAGMA integrity_check") == [("ok",)]
        assert await raw.fetch("PRAGMA foreign_key_check") == []
        for index in FTS_INDEXES:
            await raw.execute(f"INSERT INTO {index}({index}, rank) VALUES ('integrity-check', 1)")

    async def rebuild(self) -> None:
        """Index all messages with the library in use.

        Libraries split texts with U+0000, thus structured content, differently: for SQLite 3.53 an
        index of such texts that 3.40 wrote is malformed.
        """
        raw = Raw(str(self.path))
        for index in FTS_INDEXES:
            await raw.execute(f"INSERT INTO {index}({index}) VALUES ('rebuild')")


class OldStore:
    """A database as the existing store left it, and what a reader must find in it."""

    def __init__(self, location: str, sidecar: dict[str, Any]) -> None:
        self.location = location
        self.sidecar = sidecar
        self.raw = Raw(location)

    def connect(self) -> psycopg.Connection:
        """Return a connection of its own."""
        return psycopg.connect(self.location.replace("+asyncpg", "").replace("+psycopg", ""))

    def run(self, script: str) -> None:
        """Run statements, all in one transaction."""
        with self.connect() as connection:
            connection.execute(script.encode())

    def dump(self) -> list[Any]:
        """Return all there is: objects, columns, constraints, and the rows of all tables."""
        with self.connect() as connection:

            def rows(query: str) -> list[Any]:
                return connection.execute(query.encode()).fetchall()

            names = rows("SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace")
            tables = rows("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
            contents = [(name, rows(f"SELECT * FROM {name}")) for (name,) in sorted(tables)]
            return [sorted(names), contents, *(rows(query) for query in POSTGRES.values())]


def copied(stores: Path, name: str, folder: Path) -> HistoricFile:
    """Copy a file to a new folder."""
    folder.mkdir(parents=True)
    path = Path(shutil.copyfile(stores / f"{name}.db", folder / f"{name}.db"))
    return HistoricFile(path, json.loads((stores / f"{name}.json").read_text()))


def as_in_sidecar(row: dict[str, Any], *, position: int) -> dict[str, Any]:
    """Return a message as the sidecars have it: JSON decoded, no key without a value."""
    row = {key: json.loads(row[key] or "null") if key in JSON_TEXTS else row[key] for key in row}
    constants = {"active": 1, "compacted": 0, "observed": 0}
    assert {key: row.pop(key) for key in constants} == constants
    return {k: v for k, v in row.items() if v is not None or k == "content"} | {
        "position": position
    }
