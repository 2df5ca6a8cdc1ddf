"""Behind PgBouncer in transaction mode, where it is installed (Debian: `apt install pgbouncer`)."""

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import delete, make_url
from sqlalchemy.exc import DBAPIError

from hermes_orm import SchemaError, SessionDB, migrations
from hermes_orm.dialects import Transaction
from hermes_orm.dialects.inspection import findings_of
from hermes_orm.dialects.postgresql.errors import sqlstate_of
from hermes_orm.location import locate
from hermes_orm.models import Message
from hermes_orm.repositories.meta import GET_META
from tests.postgres_server import PostgresServer, free_port, run_as, unprivileged_account
from tests.raw import Raw

PGBOUNCER = os.environ.get("HERMES_TEST_PGBOUNCER") or shutil.which(
    "pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin"
)
SERVERS = 3
CONFIG = """[databases]
{name} = host={host} port={port} user={user}{password}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {own_port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = {servers}
server_reset_query =
"""

LEFT_BEHIND = """
SELECT 'statement ' || name FROM pg_prepared_statements
UNION ALL SELECT 'cursor ' || name FROM pg_cursors WHERE name <> ''
UNION ALL SELECT 'temporary ' || relname FROM pg_class WHERE relpersistence = 't'
UNION ALL SELECT 'lock of ' || pid FROM pg_locks JOIN pg_database ON pg_database.oid = database
    WHERE locktype = 'advisory' AND datname = current_database()
UNION ALL SELECT 'setting ' || name || ' ' || setting FROM pg_settings
    WHERE source = 'session' AND setting <> reset_val AND lower(name) NOT IN (
        'application_name', 'client_encoding', 'datestyle', 'intervalstyle',
        'standard_conforming_strings', 'timezone')
"""
"""Whatever outlives a transaction; the settings left out are those that the pooler sets itself."""

pytestmark = pytest.mark.skipif(PGBOUNCER is None, reason="PgBouncer is not installed")


@pytest.fixture(params=["postgresql+asyncpg", "postgresql+psycopg"])
def location(
    request: pytest.FixtureRequest, make_location: Callable[..., str], hermes_home: Path
) -> str:
    """DSN of a fresh store, not of the pooler; settings are those of a worker behind one."""
    hermes_home.mkdir()
    (hermes_home / "config.yaml").write_text("database: {postgres: {pooler: true, pool_size: 4}}")
    return make_location(request.param)


@pytest.fixture
def pooled(location: str, postgres_server: PostgresServer) -> Iterator[str]:
    """URL of the test's database behind a pooler with few connections to the server."""
    assert PGBOUNCER is not None
    own_port, server = free_port(), postgres_server.url
    config = CONFIG.format(
        host=server.host,
        port=server.port or 5432,
        user=server.username,
        name=make_url(location).database,
        password=f" password={server.password}" if server.password else "",
        own_port=own_port,
        servers=SERVERS,
    )
    with tempfile.NamedTemporaryFile("w", suffix=".ini") as file:
        file.write(config)
        file.flush()
        os.chmod(file.name, 0o644)  # it refuses to run as root
        process = subprocess.Popen(
            [PGBOUNCER, "--quiet", file.name], **run_as(unprivileged_account())
        )
        try:
            wait_for(own_port)
            url = make_url(location).set(host="127.0.0.1", port=own_port)
            yield url.render_as_string(hide_password=False)
        finally:
            process.terminate()
            process.wait(10)


def wait_for(port: int) -> None:
    deadline = time.monotonic() + 10
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return


class Client:
    """Somebody else's plain client of the same pooler."""

    def __init__(self, pooled: str) -> None:
        self._url = make_url(pooled).set(drivername="postgresql")
        self.servers: set[int] = set()

    async def look(self, beside: asyncio.Barrier | None = None) -> list[str]:
        """Return what others have left in the connection that the pooler gives."""
        url = self._url.render_as_string(hide_password=False)
        connecting = psycopg.AsyncConnection.connect(url, prepare_threshold=None)
        async with await connecting as connection, connection.cursor() as cursor:
            await cursor.execute("SELECT pg_backend_pid()")
            self.servers.update(row[0] for row in await cursor.fetchall())
            if beside:
                await beside.wait()
            await cursor.execute(LEFT_BEHIND)
            return [row[0] for row in await cursor.fetchall()]

    async def look_everywhere(self) -> list[str]:
        """Return what is left in any of the server's connections, all held at once."""
        together = asyncio.Barrier(SERVERS)
        self.servers.clear()
        found = await asyncio.gather(*(self.look(together) for _ in range(SERVERS)))
        assert len(self.servers) == SERVERS
        return [what for left in found for what in left]


async def host(pooled: str, name: str, tasks: int, rounds: int) -> int:
    """Run a host in a process of its own; return how many things it has done."""
    arguments = ["-m", "tests.reliability.host", pooled, name, str(tasks), str(rounds)]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, stdout=subprocess.PIPE
    )
    printed, _ = await process.communicate()
    assert process.returncode == 0
    return int(printed)


@pytest.mark.parametrize(("tasks", "rounds"), [(2, 1), pytest.param(8, 20, marks=pytest.mark.full)])
async def test_hosts_leave_nothing_to_other_clients(
    pooled: str, location: str, raw: Raw, tasks: int, rounds: int
) -> None:  # N2, engine 5.8
    database = make_url(location).database
    await raw.execute(f"ALTER DATABASE {database} SET lock_timeout = '1s'")  # as docs tell
    hosts = asyncio.gather(*(host(pooled, name, tasks, rounds) for name in ("a", "b")))
    client = Client(pooled)
    while not hosts.done():
        left = await client.look()
        assert [what for what in left if not what.startswith("lock")] == []
        await asyncio.sleep(0.05)
    done = await hosts
    assert min(done) > 40 * tasks * rounds
    assert len(client.servers) > 1, "one transaction is here, the next there"
    assert await client.look_everywhere() == []
    mine = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
    assert (await raw.fetch(mine))[0][0] <= SERVERS + 1  # and who asks
    assert await findings_of(locate(location), lambda step: None) == []


async def test_stores_see_each_other(pooled: str) -> None:
    stores = [SessionDB(pooled) for _ in range(4)]
    await asyncio.gather(*(store.create_session("s", "cli") for store in stores))

    async def work(store: SessionDB, name: str) -> None:
        for number in range(5):
            await store.append_message("s", "user", f"{name} {number}")
            await store.update_token_counts("s", input_tokens=1)
            assert await store.search_messages(f'"{name} {number}"')

    async def take_turns(store: SessionDB, name: str) -> None:
        for number in range(2):
            assert await store.acquire_session_turn_lease("t", name, poll_interval_seconds=0.01)
            for part in ("begin", "end"):
                text = f"{name} {number} {part}"
                await store.append_message("t", "user", text, turn_lease_holder=name)
            await store.release_session_turn_lease("t", name)

    try:
        await stores[0].create_session("t", "cli")
        tasks = [(store, f"{n}{half}") for n, store in enumerate(stores[:3]) for half in "ab"]
        await asyncio.gather(
            *(work(*task) for task in tasks), *(take_turns(*task) for task in tasks)
        )
        assert await stores[0].rebuild_fts() == 1
        assert await stores[1].optimize_fts_storage() == {"ok": True, "vacuumed": True}
        session: Any = await stores[3].get_session("s")
        assert (session["message_count"], session["input_tokens"]) == (30, 30)
        turns = [str(row["content"]) for row in await stores[3].get_messages("t")]
        assert len(turns) == 24
        for begin, end in zip(turns[::2], turns[1::2], strict=True):
            assert begin.removesuffix("begin") == end.removesuffix("end")
    finally:
        await asyncio.gather(*(store.close() for store in stores))


async def test_a_read_only_store(pooled: str) -> None:
    async with SessionDB(pooled) as db, SessionDB(pooled, read_only=True) as reader:
        await db.create_session("s", "cli")
        await db.append_message("s", "user", "hello")
        assert await reader.message_count("s") == 1
        assert await reader.search_messages("hello")
        with pytest.raises(PermissionError, match="read-only"):
            await reader.set_meta("k", "v")
        with pytest.raises(DBAPIError) as refused:
            await reader._read(lambda connection: connection.execute(delete(Message)))
        assert sqlstate_of(refused.value) == "25006"
        await db.set_meta("k", "v")  # the server's connection is not a read-only one now
        assert await reader.get_meta("k") == "v"
        assert await Client(pooled).look_everywhere() == []


async def test_migrations_are_refused(pooled: str, raw: Raw) -> None:
    await raw.execute("UPDATE hermes_alembic_version SET version_num = '0030'")
    for options in ({}, {"read_only": True}):
        async with SessionDB(pooled, **options) as db:
            with pytest.raises(SchemaError, match=r"nothing was changed; .* direct connection"):
                await db.get_meta("k")
    with pytest.raises(Exception, match=r"unsupported startup parameter.*postgres\.pooler: true"):
        await migrations.upgrade(pooled)
    assert await raw.fetch("SELECT version_num FROM hermes_alembic_version") == [("0030",)]
    assert await Client(pooled).look_everywhere() == []


async def test_a_statement_that_ends_early_harms_no_other_client(pooled: str) -> None:
    def ask(tx: Transaction) -> None:
        tx.all(GET_META, {"key": 1})  # asyncpg finds out between the two halves of the statement

    async with SessionDB(pooled) as db:
        asked = [db.database.read(ask, scope="statement") for _ in range(SERVERS)]
        await asyncio.gather(*asked, return_exceptions=True)
        async with asyncio.timeout(10):
            await Client(pooled).look_everywhere()
        await db.create_session("s", "cli")
        for number in range(20):
            task = asyncio.create_task(db.append_message("s", "user", str(number)))
            await asyncio.sleep(number % 5 / 500)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await db.set_meta("k", str(number))
        rows = await db.get_messages("s")
        assert await db.message_count("s") == len(rows)
    assert await Client(pooled).look_everywhere() == []
