"""What a store keeps to itself, and what nobody can talk it into.

Errors and logs: test_arguments.py; passwords: tests/config and tests/dialects/postgresql.
"""

import asyncio
import inspect
import os
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event

from hermes_orm import (
    ReadOnlyStoreError,
    SessionDB,
    inspect_session_database,
    recover_session_database,
    write_recovery_report,
)
from hermes_orm.config import load_settings
from hermes_orm.dialects.prepared import Prepared
from tests.cli.commands import run
from tests.contract.samples import SAMPLES, completed, seed
from tests.contract.tables import Tables
from tests.postgres_server import PostgresServer
from tests.reliability.odd_values import operations, parameters, places, replaced, sample

MARK = "zq7 ' \" ; -- %s :id $1 ? \\ /* "
NUMBER = 987_654_321
SEEN = ("zq7", str(NUMBER))


@pytest.fixture
async def tables(db: Any, location: str) -> AsyncIterator[Tables]:
    """The tables of a store that `seed` has filled."""
    await seed(db)
    tables = Tables(location)
    yield tables
    tables.close()


# Files


@pytest.fixture
def no_umask() -> Iterator[None]:
    """Files get the rights that whoever creates them asks for."""
    before = os.umask(0)
    yield
    os.umask(before)


async def test_whatever_is_written_is_private(  # engine.md 4.10
    make_location: Callable[..., str], tmp_path: Path, no_umask: None
) -> None:
    folder = tmp_path / "private"
    path = folder / "state.db"
    async with SessionDB(path) as db:
        await seed(db)
        async with db.handoff_watcher_lock(), db.transaction() as unit:
            await unit.append_message("s", "user", "x")
            during = modes(folder)
    assert len(during) == 3, "no journal or no lock seen"
    reported = folder / "report.json"
    await write_recovery_report(reported, await inspect_session_database(path))
    await recover_session_database(path, folder / "recovered.db")
    document = folder / "all.json"
    elsewhere = folder / "elsewhere"
    elsewhere.touch(0o600)
    document.with_name("all.json.partial").symlink_to(elsewhere)
    await asyncio.to_thread(run, "sessions", "export", "--db", str(path), "-o", str(document))
    assert elsewhere.read_bytes() == b""
    assert {*during.values(), *modes(folder).values()} == {0o600}
    assert document.stat().st_size > 1_000


def modes(folder: Path) -> dict[str, int]:
    """Return the rights of all files."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.lstat().st_mode & 0o777 for path in files}


ESCAPES = [
    *("../out", "/{}/out", "..", ".", "", "a/../../out", "..\\out", "OUT", "out\0", "~/out"),
    *("link/out", "*", "%2e%2e/out"),
]


async def test_no_id_leads_out_of_the_folder_of_sessions(db: Any, raw: Any, tmp_path: Path) -> None:
    outside, folder = tmp_path / "x", tmp_path / "x" / "sessions"
    (folder / "a").mkdir(parents=True)
    (folder / "link").symlink_to(outside)
    for suffix in (".json", ".jsonl"):
        (outside / f"out{suffix}").write_text("{}")
        (folder / f"out{suffix}").symlink_to(outside / f"out{suffix}")
    (folder / "request_dump_out_1.json").symlink_to(outside / "out.json")
    ids = [name.format(outside) for name in ESCAPES]
    before = sorted(outside.rglob("*"))
    for name, method in operations().items():
        if "sessions_dir" not in parameters(method):
            continue
        for key in ids:
            if key and "\0" not in key:
                await raw.execute(
                    "INSERT INTO sessions (id, source, session_key, started_at, ended_at)"
                    " VALUES (?, 'tui', 'k', 1, 2)",
                    key,
                )
        given = {**sample(name, method), "sessions_dir": folder}
        if "older_than_days" in given:
            given["older_than_days"] = 1
        for key in ids:
            if "session_id" in given:
                given["session_id"] = key
            if "session_ids" in given:
                given["session_ids"] = [key]
            await getattr(db, name)(**given)
        assert sorted(outside.rglob("*")) == before, name
        await raw.execute("DELETE FROM sessions")
    await db.create_session("out", "cli")
    assert await db.delete_session("out", folder)
    assert {path.name for path in outside.rglob("out*")} == {"out.json", "out.jsonl"}


# Statements


@pytest.fixture
def texts(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[str]]:
    """The text of every statement that a driver gets."""
    seen: set[str] = set()

    def note(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        seen.add(statement)

    monkeypatch.setattr(Prepared, "on_driver", False)
    event.listen(Engine, "before_cursor_execute", note)
    yield seen
    event.remove(Engine, "before_cursor_execute", note)


def marked(name: str, method: Any) -> Iterator[dict[str, Any]]:
    """Yield calls of an operation, each with one value that would be seen in a statement."""
    defaults = inspect.signature(method).parameters
    inner: Any
    given = sample(name, method)
    for parameter in parameters(method):
        value = given.get(parameter)
        if value is None and parameter in defaults:
            value = defaults[parameter].default
        for way in [(), *places(value)]:
            inner = value
            for key in way:
                inner = inner[key]
            for mark in (MARK, NUMBER, NUMBER + 0.5, [MARK], (MARK,), {MARK: MARK}):
                is_open = inner in (None, inspect.Parameter.empty) and mark in (MARK, NUMBER)
                if is_open or type(mark) is type(inner):
                    yield {**given, parameter: replaced(value, way, mark)}


async def test_no_statement_holds_what_a_caller_gave(
    db: Any, tables: Tables, texts: set[str]
) -> None:
    moment = tables.moment()
    texts.clear()
    for name, method in operations().items():
        for arguments in marked(name, method):
            with suppress(TypeError, ValueError, RuntimeError, sqlite3.IntegrityError):
                await completed(getattr(db, name)(**arguments))
            if tables.moment() != moment:
                await db.flush_token_counts()
                tables.restore()
                moment = tables.moment()
            found = [text for text in texts if any(mark in text for mark in SEEN)]
            assert not found, (name, arguments, found)
    assert len(texts) > 200


# Read-only stores


def attempts(name: str, method: Any) -> Iterator[dict[str, Any]]:
    """Yield calls of an operation: the usual one, and some that hide a statement."""
    given = sample(name, method)
    yield given
    for parameter, value in given.items():
        if isinstance(value, str):
            for text in ("'; DELETE FROM sessions; --", "s\0'; DELETE FROM sessions", "COMMIT;"):
                yield {**given, parameter: text}


async def test_a_read_only_store_writes_nothing(
    db: Any, location: str, raw: Any, tables: Tables, open_store: Callable[..., Any]
) -> None:
    await db.close()
    path = None if raw.is_postgres else Path(location)
    octets = path and path.read_bytes()
    reader = open_store(read_only=True)
    for name, method in operations().items():
        for arguments in attempts(name, method):
            with suppress(ReadOnlyStoreError, TypeError, ValueError):
                await completed(getattr(reader, name)(**arguments))
    for name in SAMPLES.keys() - operations().keys():  # those without arguments
        if inspect.iscoroutinefunction(getattr(reader, name)):
            with suppress(ReadOnlyStoreError):
                await getattr(reader, name)()
    with pytest.raises(ReadOnlyStoreError):
        async with reader.transaction() as unit:
            await unit.set_meta("k", "other")
    if raw.is_postgres:
        with pytest.raises(ReadOnlyStoreError):
            await reader._write(lambda connection: connection.exec_driver_sql("SELECT 1"))
        with pytest.raises(Exception, match="read-only transaction"):
            await reader._read(lambda lent: lent.exec_driver_sql("DELETE FROM state_meta"))
    await reader.close()
    assert tables.rows() == tables.before
    assert path is None or path.read_bytes() == octets
    assert path is None or [file.name for file in path.parent.glob(f"{path.name}*")] == [path.name]


# Names


async def test_a_database_of_any_name_is_one_name(postgres_server: PostgresServer) -> None:
    name = f"{postgres_server.prefix}_a\"b'; DROP TABLE x; -- %s:$1"
    postgres_server.create(name)
    for driver in ("postgresql+asyncpg", "postgresql+psycopg"):
        async with SessionDB(postgres_server.location(name, driver)) as db:
            await db.set_meta("k", driver)
            assert await db.get_meta("k") == driver
    postgres_server.drop(name)


def test_settings_are_data(hermes_home: Path, tmp_path: Path) -> None:
    hermes_home.mkdir()
    made = tmp_path / "made"
    (hermes_home / "config.yaml").write_text(
        f"database: !!python/object/apply:pathlib.Path.touch [!!python/object/apply:pathlib.Path"
        f" [{made}]]\n"
    )
    load_settings(hermes_home)
    assert not made.exists()
