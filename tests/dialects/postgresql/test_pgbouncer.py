"""Behind PgBouncer in transaction mode, where it is installed (Debian: `apt install pgbouncer`)."""

import asyncio
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import make_url

from hermes_orm import SessionDB
from tests.postgres_server import PostgresServer, free_port, run_as, unprivileged_account
from tests.raw import Raw

PGBOUNCER = os.environ.get("HERMES_TEST_PGBOUNCER") or shutil.which(
    "pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin"
)
CONFIG = """[databases]
{name} = host={host} port={port} user={user}{password}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {own_port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 3
server_reset_query =
"""

pytestmark = pytest.mark.skipif(PGBOUNCER is None, reason="PgBouncer is not installed")


@pytest.fixture
def pooled(location: str, postgres_server: PostgresServer) -> Iterator[str]:
    """URL of the test's database behind a pooler with three connections to the server."""
    assert PGBOUNCER is not None
    own_port, server = free_port(), postgres_server.url
    config = CONFIG.format(
        host=server.host,
        port=server.port or 5432,
        user=server.username,
        name=make_url(location).database,
        password=f" password={server.password}" if server.password else "",
        own_port=own_port,
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


async def test_documented_settings_work_under_load(
    pooled: str, raw: Raw, hermes_home: Path
) -> None:  # N2, engine 5.8
    hermes_home.mkdir()
    (hermes_home / "config.yaml").write_text("database: {postgres: {pooler: true, pool_size: 4}}")
    stores = [SessionDB(pooled) for _ in range(4)]
    await asyncio.gather(*(store.create_session("s", "cli") for store in stores))

    async def work(store: SessionDB, name: int) -> None:
        for number in range(15):
            await store.append_message("s", "user", f"{name} {number}")
            await store.update_token_counts("s", input_tokens=1)
            await store.get_messages("s", limit=5, latest=True)
            assert await store.search_messages(f'"{name} {number}"')
            async with store.transaction() as unit:
                await unit.set_meta(f"{name}", f"{number}")
                assert await unit.get_meta(f"{name}") == f"{number}"

    try:
        await asyncio.gather(*(work(store, n) for n in range(3) for store in (stores[n],) * 2))
        session = await stores[3].get_session("s")
        assert session is not None
        assert (session["message_count"], session["input_tokens"]) == (90, 90)
        mine = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        assert (await raw.fetch(mine))[0][0] <= 4  # three of the pooler, and who asks
        async with SessionDB(pooled, read_only=True) as reader:
            assert await reader.message_count("s") == 90
            with pytest.raises(Exception, match="read-only"):
                await reader.set_meta("k", "v")
    finally:
        await asyncio.gather(*(store.close() for store in stores))


async def test_a_cancelled_statement_harms_no_other_client(pooled: str, hermes_home: Path) -> None:
    hermes_home.mkdir()
    (hermes_home / "config.yaml").write_text("database: {postgres: {pooler: true}}")
    async with SessionDB(pooled) as db:
        await db.create_session("s", "cli")
        for number in range(20):
            task = asyncio.create_task(db.append_message("s", "user", str(number)))
            await asyncio.sleep(number % 5 / 500)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await db.set_meta("k", str(number))
        rows = await db.get_messages("s")
        assert await db.message_count("s") == len(rows)
