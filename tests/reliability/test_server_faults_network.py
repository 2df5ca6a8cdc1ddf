"""The network between a store and its server: cut anywhere, silent, or gone.

A call whose answer was lost raises, and was done or not; nothing does it a second time.
"""

import asyncio
import itertools
import socket
import time
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy.exc
from sqlalchemy import make_url

from hermes_orm import SessionDB
from hermes_orm.dialects.postgresql import lines
from tests.contract.samples import SAMPLES, seed
from tests.contract.tables import Tables
from tests.contract.test_cancellation import operations, run
from tests.raw import Raw
from tests.reliability.faults import SECRET, assert_told, assert_usable, location, raw
from tests.reliability.network import Network

__all__ = ["location", "raw"]

FEW = ["append_message", "replace_messages", "archive_and_compact", "get_messages"]
TELLS_OTHERWISE = {
    "try_acquire_compression_lock",
    "refresh_compression_lock",
    "release_compression_lock",
    "logical_size_bytes",
    "maybe_auto_prune_and_vacuum",
    "maybe_auto_archive",
    "queue_token_counts",
    "vacuum",
    "optimize_fts_storage",
}
"""Operations whose contract is to tell of a failure by their result, or by a log."""


@pytest.fixture
async def network(location: str) -> AsyncIterator[Network]:
    url = make_url(location)
    assert url.host is not None
    network = Network(url.host, url.port or 5432)
    server = await asyncio.start_server(network.connected, "127.0.0.1")
    network.port = server.sockets[0].getsockname()[1]
    async with server:
        yield network
        await network.close()


@pytest.fixture
async def db(location: str, network: Network) -> AsyncIterator[SessionDB]:
    """A store that reaches its server by the network."""
    url = make_url(location).set(host="127.0.0.1", port=network.port)
    async with SessionDB(url.render_as_string(hide_password=False)) as db:
        yield db
        network.go_on()


@pytest.fixture
def one_connection(hermes_home: Path) -> None:
    hermes_home.mkdir()
    (hermes_home / "config.yaml").write_text(
        "database: {postgres: {pool_size: 1, max_overflow: 0, pool_timeout: 5}}"
    )


async def works(db: SessionDB) -> None:
    """Store what is queued, take the write lock and read, with the only connection."""
    await db.flush_token_counts()
    await db.reopen_session("no such session")
    await db.get_meta("k")


@pytest.mark.parametrize("names", [FEW, pytest.param(None, marks=pytest.mark.full)])
@pytest.mark.usefixtures("one_connection", "clock")
async def test_answers_are_lost(
    db: SessionDB, network: Network, location: str, raw: Raw, names: list[str] | None
) -> None:
    await seed(db)
    with closing(Tables(location)) as tables:
        lost, done = await lose_answers(db, network, tables, names or operations())
    await assert_usable(db, raw)
    print(f"{lost} answers lost, {done} of their calls were done")  # noqa: T201


async def lose_answers(
    db: SessionDB, network: Network, tables: Tables, names: list[str]
) -> tuple[int, int]:
    """Lose each answer that each operation waits for; return how many, and how many were done."""
    lost = done = 0
    for name in names:
        sample = SAMPLES[name]
        await run(db, name)
        await works(db)
        after = tables.rows()
        tables.restore()
        for number in itertools.count():
            where = f"{name}, without answer {number}"
            network.lose_answer(number)
            try:
                await asyncio.wait_for(run(db, name), 20)
                await db.flush_token_counts()
            except Exception as error:  # noqa: BLE001  (what it is decides the test)
                is_told = True
                try:
                    assert_told(error)
                except AssertionError as failed:
                    failed.add_note(where)
                    raise
            else:
                is_told = False
            was_lost = network.keep_answers()
            await works(db)
            found = tables.rows()
            if not sample.in_steps:
                assert found in (after, tables.before), where
                if not is_told and name not in TELLS_OTHERWISE:
                    assert found == after, where
            done += was_lost and found == after
            tables.restore()
            if not was_lost:
                break
            lost += 1
    return lost, done


@pytest.mark.usefixtures("one_connection")
async def test_an_append_without_an_answer_is_there_once(
    db: SessionDB, network: Network, raw: Raw
) -> None:  # field report N10
    await db.create_session("s", "cli")
    await db.append_message("s", "user", "first")
    network.lose_answer(0)
    with pytest.raises(sqlalchemy.exc.OperationalError) as caught:
        await db.append_message("s", "user", SECRET)
    assert_told(caught.value)
    assert [row["content"] for row in await db.get_messages("s")] == ["first", SECRET]
    await assert_usable(db, raw)


@pytest.mark.parametrize("breaks", ["drop", "reset"])
async def test_connections_break_while_they_rest(
    db: SessionDB, network: Network, raw: Raw, breaks: str
) -> None:
    await db.create_session("s", "cli")
    await asyncio.gather(*(db.session_count() for _ in range(5)))
    getattr(network, breaks)()
    await asyncio.sleep(0.05)
    await asyncio.gather(*(db.append_message("s", "user", str(n)) for n in range(5)))
    assert await db.message_count("s") == 5
    await assert_usable(db, raw)


@pytest.mark.parametrize("breaks", ["drop", "reset"])
async def test_the_network_is_down_for_a_while(
    db: SessionDB, network: Network, raw: Raw, breaks: str
) -> None:
    await db.create_session("s", "cli")
    network.refuse()
    getattr(network, breaks)()
    await asyncio.sleep(0.05)
    for _ in range(3):
        with pytest.raises(sqlalchemy.exc.OperationalError) as caught:
            await db.append_message("s", "user", SECRET)
        assert "cannot connect" in str(assert_told(caught.value, "08001"))
    network.go_on()
    await db.append_message("s", "user", "back")
    assert await db.message_count("s") == 1
    await assert_usable(db, raw)


async def test_a_short_silence_is_waited_out(db: SessionDB, network: Network, raw: Raw) -> None:
    await db.create_session("s", "cli")
    network.stall()
    appending = asyncio.create_task(db.append_message("s", "user", "late"))
    await asyncio.sleep(0.3)
    assert not appending.done()
    network.go_on()
    await appending
    assert await db.message_count("s") == 1
    await assert_usable(db, raw)


async def test_connections_that_are_half_open_are_found_out(
    db: SessionDB, network: Network, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hermes_orm.dialects.postgresql.pool.PING_WITHIN", 0.3)
    await db.create_session("s", "cli")
    await asyncio.gather(*(db.session_count() for _ in range(3)))
    await asyncio.sleep(1.05)  # a rest after which the store asks
    network.stall()
    stalled = len(network.clients)
    appending = asyncio.create_task(db.append_message("s", "user", "once"))
    while len(network.clients) == stalled:  # until it tries another one
        await asyncio.sleep(0.05)
    network.go_on()
    began = time.monotonic()
    await asyncio.gather(appending, *(db.session_count() for _ in range(3)))
    assert time.monotonic() - began < 2
    assert await db.message_count("s") == 1
    await assert_usable(db, raw)


@pytest.mark.usefixtures("one_connection")
async def test_a_call_into_the_silence_can_be_cancelled(
    db: SessionDB, network: Network, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hermes_orm.dialects.postgresql.pool.ROLLBACK_WITHIN", 0.3)
    await db.create_session("s", "cli")
    for call in (db.append_message("s", "user", SECRET), db.replace_messages("s", [])):
        network.stall()
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(call, 0.2)
        assert time.monotonic() - began < 13  # psycopg waits twice 5 s for the server
        network.reset()
        network.go_on()
        assert await db.message_count("s") == 0
    await assert_usable(db, raw)


async def test_a_store_is_closed_into_the_silence(
    db: SessionDB, network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CLOSE_WITHIN", "CANCEL_WITHIN"):
        monkeypatch.setattr(f"hermes_orm.dialects.postgresql.engine.{name}", 0.2)
    await db.create_session("s", "cli")
    await asyncio.gather(*(db.session_count() for _ in range(3)))
    tasks = asyncio.all_tasks()
    network.stall()
    calls = [asyncio.create_task(db.append_message("s", "user", SECRET)) for _ in range(2)]
    await asyncio.sleep(0.1)
    await asyncio.wait_for(db.close(), 10)
    for result in await asyncio.gather(*calls, return_exceptions=True):
        assert isinstance(result, RuntimeError) and "closed" in str(result)
    network.reset()
    network.go_on()
    await asyncio.sleep(0.1)
    assert asyncio.all_tasks() <= tasks


async def test_command_timeout_bounds_the_silence(
    location: str, network: Network, hermes_home: Path
) -> None:
    if "asyncpg" not in location:
        pytest.skip("an option of asyncpg")
    hermes_home.mkdir()
    (hermes_home / "config.yaml").write_text(
        "database: {postgres: {connect_args: {command_timeout: 0.2}}}"
    )
    url = make_url(location).set(host="127.0.0.1", port=network.port)
    async with SessionDB(url.render_as_string(hide_password=False)) as db:
        await db.create_session("s", "cli")
        network.stall()
        with pytest.raises(sqlalchemy.exc.OperationalError, match="did not answer") as caught:
            await db.append_message("s", "user", SECRET)
        assert_told(caught.value)
        network.reset()
        network.go_on()
        await db.append_message("s", "user", "again")


async def test_the_operating_system_watches_connections(db: SessionDB) -> None:
    def options(tx: Any) -> list[int]:
        with lines._socket(tx.connection.connection.driver_connection) as line:
            keeps_alive = line.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            names = (getattr(socket, name) for name in lines.ALIVE)
            return [keeps_alive, *(line.getsockopt(socket.IPPROTO_TCP, name) for name in names)]

    assert await db.database.read(options) == [1, *lines.ALIVE.values()]
