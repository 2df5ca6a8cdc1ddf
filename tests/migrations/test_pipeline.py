"""Migrations as a deploy pipeline runs them, while workers use the database."""

import asyncio
import contextlib
import signal
import sys
from argparse import Namespace
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from io import StringIO
from pathlib import Path
from typing import Any

import psycopg
import pytest
from alembic import command
from alembic.config import Config

from hermes_orm import SchemaError, SessionDB, migrations
from tests.conftest import DRIVERS
from tests.raw import Raw

CHECKOUT = Path(__file__).parents[2]
POSTGRES = [driver for driver in DRIVERS if driver != "sqlite"]
BEFORE_INDEXES = "0029"

NO_LOCK = """
    SELECT 1 WHERE NOT EXISTS (
        SELECT 1 FROM pg_locks JOIN pg_database ON pg_database.oid = pg_locks.database
        WHERE locktype = 'advisory' AND datname = current_database()
    )
"""
MANY_MESSAGES = """
    INSERT INTO messages (session_id, role, content, timestamp)
    SELECT 's', 'user', 'message ' || n, n FROM generate_series(1, 2001) AS n
"""


def config(url: str, name: str = "upgrade", written: StringIO | None = None) -> Config:
    """Return what Alembic's command line makes of `-x url=…`."""
    options = Namespace(x=[f"url={url}"], cmd=(getattr(command, name), [], []))
    out = written or StringIO()
    return Config(CHECKOUT / "alembic.ini", output_buffer=out, stdout=out, cmd_opts=options)


def connect(url: str, **options: Any) -> psycopg.Connection:
    return psycopg.connect(url.replace("+asyncpg", "").replace("+psycopg", ""), **options)


@asynccontextmanager
async def pipeline(url: str, code: int = 0) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run `alembic upgrade head` in a process of its own meanwhile; it must end with a code."""
    arguments = ["-m", "alembic", "-x", f"url={url}", "upgrade", "head"]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, cwd=CHECKOUT, stderr=asyncio.subprocess.PIPE
    )
    try:
        yield process
        _, errors = await asyncio.wait_for(process.communicate(), 60)
        assert process.returncode == code, errors.decode()
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()


async def until(raw: Raw, query: str) -> None:
    """Wait until a query finds a row."""
    async with asyncio.timeout(40):
        while not await raw.fetch(query):
            await asyncio.sleep(0.05)


async def test_indexes_of_a_big_table_are_built_while_writers_go_on(
    make_location: Callable[..., str],
) -> None:
    """Two pipelines at once, a reader with an old snapshot, an index that a failed build left."""
    url = make_location("postgresql+asyncpg", empty=True)
    raw = Raw(url)
    await migrations.upgrade(url, BEFORE_INDEXES)
    with connect(url, autocommit=True) as writer, connect(url) as reader:
        writer.execute("INSERT INTO sessions (id, source, started_at) VALUES ('s', 'cli', 1)")
        writer.execute(MANY_MESSAGES)
        writer.execute("CREATE INDEX idx_sessions_tool_names ON sessions (id)")
        writer.execute(
            "UPDATE pg_index SET indisvalid = false "
            "WHERE indexrelid = 'idx_sessions_tool_names'::regclass"
        )
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT 1")  # a concurrent build waits for the end of this snapshot
        async with pipeline(url), pipeline(url):
            await until(raw, "SELECT 1 FROM pg_stat_progress_create_index")
            writer.execute("SET lock_timeout = '500ms'")
            writer.execute(
                "INSERT INTO messages (session_id, role, content, timestamp) "
                "VALUES ('s', 'user', 'meanwhile', 20000)"
            )
            assert await raw.fetch("SELECT 1 FROM pg_stat_progress_create_index")
            reader.rollback()
    assert await migrations.current(url) == "0031"
    assert await raw.fetch("SELECT 1 FROM pg_index WHERE NOT indisvalid") == []
    assert await raw.fetch("SELECT indexdef FROM pg_indexes WHERE indexdef LIKE '%(tool_names)'")
    assert await raw.fetch("SELECT count(message_uid) FROM messages") == [(2002,)]
    await until(raw, NO_LOCK)  # a server process may outlive its client for a moment


@pytest.mark.parametrize("is_ended", [False, True], ids=["server goes on", "server ends it"])
async def test_pipeline_that_is_killed_while_it_builds_an_index_can_be_run_again(
    make_location: Callable[..., str], is_ended: bool
) -> None:
    url = make_location("postgresql+asyncpg", empty=True)
    raw = Raw(url)
    await migrations.upgrade(url, BEFORE_INDEXES)
    with connect(url, autocommit=True) as writer, connect(url) as reader:
        writer.execute("INSERT INTO sessions (id, source, started_at) VALUES ('s', 'cli', 1)")
        writer.execute(MANY_MESSAGES)
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT 1")  # the build waits for the end of this snapshot
        async with pipeline(url, -signal.SIGKILL) as process:
            await until(raw, "SELECT 1 FROM pg_stat_progress_create_index")
            process.kill()
        if is_ended:
            await raw.fetch("SELECT pg_terminate_backend(pid) FROM pg_stat_progress_create_index")
        assert await raw.fetch("SELECT 1 FROM pg_index WHERE NOT indisvalid")
        async with pipeline(url):
            reader.rollback()
    assert await migrations.current(url) == "0031"
    assert await raw.fetch("SELECT 1 FROM pg_index WHERE NOT indisvalid") == []
    assert await raw.fetch("SELECT count(message_uid) FROM messages") == [(2001,)]


@pytest.mark.parametrize("driver", POSTGRES)
async def test_who_uses_a_table_that_is_to_be_changed_is_named(
    make_location: Callable[..., str], driver: str
) -> None:
    url = make_location(driver, empty=True)
    await migrations.upgrade(url, BEFORE_INDEXES)
    with connect(url, application_name="somebody") as other:
        other.execute("LOCK TABLE messages IN SHARE MODE")
        reason = rf"locked by process {other.info.backend_pid} \(somebody\).*lock_timeout"
        with pytest.raises(SchemaError, match=reason):
            await migrations.upgrade(f"{url}?options=-clock_timeout=200")
    assert await migrations.current(url) == BEFORE_INDEXES
    await migrations.upgrade(url)
    assert await migrations.current(url) == "0031"


OPEN_AND_APPEND = """
import asyncio, sys
from hermes_orm import SessionDB

async def main():
    async with SessionDB(sys.argv[1]) as db:
        await db.append_message("s", "user", sys.argv[2])

asyncio.run(main())
"""


@pytest.mark.parametrize("driver", DRIVERS[:2])
async def test_workers_that_open_an_older_database_at_once_all_work(
    make_location: Callable[..., str], driver: str
) -> None:
    url = make_location(driver)
    async with SessionDB(url) as db:
        await db.create_session("s", "cli")
    await migrations.downgrade(url, BEFORE_INDEXES, force=True)
    workers = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", OPEN_AND_APPEND, url, str(number)),
            cwd=CHECKOUT,
            stderr=asyncio.subprocess.PIPE,
        )
        for number in range(3)
    ]
    outputs = [await worker.communicate() for worker in workers]
    assert [worker.returncode for worker in workers] == [0] * 3, outputs
    async with SessionDB(url) as db:
        contents = {row["content"] for row in await db.get_messages("s")}
        assert contents == set("012")
    assert await migrations.current(url) == "0031"


def test_questions_change_nothing(make_location: Callable[..., str]) -> None:
    for driver in DRIVERS[:2]:
        created, empty = make_location(driver), make_location(driver, empty=True)
        for name in ("current", "history"):
            written = StringIO()
            getattr(command, name)(config(created, name, written))
            assert "0031 (head)" in written.getvalue()
        if driver == "sqlite":
            Path(empty).touch()
        written = StringIO()
        command.current(config(empty, "current", written))
        assert written.getvalue() == ""
        assert asyncio.run(migrations.current(empty)) is None
        if driver == "sqlite":
            assert Path(empty).stat().st_size == 0
        else:
            assert (
                asyncio.run(
                    Raw(empty).fetch("SELECT 1 FROM pg_tables WHERE tablename LIKE 'herm%'")
                )
                == []
            )


def test_nearest_url_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ini = tmp_path / "alembic.ini"
    ini.write_text(
        f"[alembic]\nscript_location = {CHECKOUT / 'alembic'}\nsqlalchemy.url = {tmp_path}/ini.db\n"
    )
    monkeypatch.delenv("HERMES_DATABASE_URL", raising=False)
    for name, options in (("ini", []), ("variable", []), ("option", [f"url={tmp_path}/option.db"])):
        command.upgrade(Config(ini, cmd_opts=Namespace(x=options)), "0001")
        assert {path.stem for path in tmp_path.glob("*.db")} == {name}
        (tmp_path / f"{name}.db").unlink()
        monkeypatch.setenv("HERMES_DATABASE_URL", f"{tmp_path}/variable.db")
