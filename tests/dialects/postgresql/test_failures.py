"""Failures of the server and the way to it: their classes, their texts, and how long they take."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import sqlalchemy.exc
from psycopg import sql
from sqlalchemy import make_url, text

from hermes_orm import SessionDB, classify_persistence_error, get_last_init_error
from hermes_orm.errors import SchemaError
from tests.postgres_server import PostgresServer, free_port
from tests.raw import Raw


@pytest.fixture
def driver(location: str) -> str:
    return location.partition("://")[0]


@pytest.fixture
async def hangs_up() -> AsyncIterator[int]:
    """The port of a server that closes every connection at once."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()


def chain(error: BaseException | None) -> list[BaseException]:
    return [] if error is None else [error, *chain(error.__cause__ or error.__context__)]


async def test_an_unreachable_server_is_one_class_and_names_the_server(
    driver: str, hangs_up: int
) -> None:
    closed = free_port()
    cases = [
        (f"u:s3cret@127.0.0.1:{closed}/d", f"127.0.0.1:{closed}"),
        ("u:s3cret@no-such-host.invalid/d", "no-such-host.invalid:5432"),
        (f"u:s3cret@127.0.0.1:{closed},127.0.0.1:{hangs_up}/d", f"127.0.0.1:{hangs_up}"),
        ("/d?host=/no/such/folder", "/no/such/folder:5432"),
        (f"u:s3cret@127.0.0.1:{hangs_up}/d", f"127.0.0.1:{hangs_up}"),
    ]
    for url, server in cases:
        async with SessionDB(f"{driver}://{url}") as db:
            for _ in range(2):  # nothing half-open is kept
                with pytest.raises(
                    sqlalchemy.exc.OperationalError, match="cannot connect"
                ) as caught:
                    await db.get_meta("k")
        error = caught.value
        assert server in str(error) and "URL" in str(error)
        assert error.orig.sqlstate == "08001"  # type: ignore[union-attr]
        assert classify_persistence_error(error) == "unknown"
        assert "s3cret" not in "".join(f"{e!r} {e} {vars(e)}" for e in chain(error))
        assert server in (get_last_init_error() or "")


async def test_a_refusal_of_the_server_keeps_its_words(location: str) -> None:
    elsewhere = make_url(location).set(database="no_such_database")
    async with SessionDB(elsewhere.render_as_string(hide_password=False)) as db:
        with pytest.raises(sqlalchemy.exc.OperationalError, match='"no_such_database" does not'):
            await db.get_meta("k")


async def test_a_database_without_an_encoding_is_refused(
    location: str, postgres_server: PostgresServer
) -> None:  # X15
    name = f"{postgres_server.prefix}_ascii"
    url = make_url(location).set(database=name).render_as_string(hide_password=False)
    statement = "CREATE DATABASE {} ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0"
    with postgres_server.admin() as admin:
        admin.execute(sql.SQL(statement).format(sql.Identifier(name)))
    try:
        async with SessionDB(url) as db:
            with pytest.raises(SchemaError, match="SQL_ASCII"):
                await db.get_meta("k")
    finally:
        postgres_server.drop(name)


async def test_no_error_of_a_block_leads_to_values(db: SessionDB, raw: Raw) -> None:
    await db.set_meta("k", "secret")
    await raw.execute("CREATE UNIQUE INDEX one_value ON state_meta (value)")
    with pytest.raises(sqlalchemy.exc.IntegrityError) as caught:
        async with db.transaction() as unit:
            await unit.set_meta("other", "secret")
    for error in chain(caught.value):
        assert "secret" not in f"{error!r} {error} {vars(error)}"
        assert "INSERT" not in str(error)


async def test_the_event_loop_of_windows_is_refused_for_psycopg_only(
    db: SessionDB, driver: str, monkeypatch: pytest.MonkeyPatch
) -> None:  # N8
    loop = type(asyncio.get_running_loop())
    monkeypatch.setattr(asyncio, "ProactorEventLoop", loop, raising=False)
    if "asyncpg" in driver:
        assert await db.get_meta("k") is None
        return
    with pytest.raises(RuntimeError, match=r"asyncpg://.*SelectorEventLoop"):
        await db.get_meta("k")
    monkeypatch.delattr(asyncio, "ProactorEventLoop")
    assert await db.get_meta("k") is None


@pytest.mark.parametrize("pooler", [False, True])
async def test_maintenance_runs_outside_of_transactions(
    db: SessionDB, hermes_home: Path, pooler: bool
) -> None:
    if pooler:
        hermes_home.mkdir()
        (hermes_home / "config.yaml").write_text("database: {postgres: {pooler: true}}")
    assert await db.vacuum() == 1


@pytest.mark.parametrize("pooler", [False, True])
async def test_patience_bounds_the_wait_for_a_row(
    db: SessionDB,
    open_store: Callable[..., SessionDB],
    raw: Raw,
    hermes_home: Path,
    pooler: bool,
) -> None:  # N13
    if pooler:  # nothing is sent at start-up, and the role has no lock_timeout
        hermes_home.mkdir()
        (hermes_home / "config.yaml").write_text("database: {postgres: {pooler: true}}")
    await db.create_session("s", "cli")
    writer = open_store()
    await writer.get_meta("open")
    async with db.transaction() as unit:
        await unit.set_session_title("s", "held")
        for patience in (0.2, 0.7, 1.2):
            began = time.monotonic()
            with pytest.raises(sqlalchemy.exc.OperationalError, match="database is locked"):
                await writer.database.write(
                    lambda tx: tx.connection.execute(text("SELECT 1 FROM sessions FOR UPDATE")),
                    patience=patience,
                )
            assert time.monotonic() - began < patience + 1.1

        late = asyncio.create_task(writer.append_message("s", "user", "waits"))
        await asyncio.sleep(1.3)
        assert not late.done()
    await asyncio.wait_for(late, 5)
    assert await db.message_count("s") == 1
