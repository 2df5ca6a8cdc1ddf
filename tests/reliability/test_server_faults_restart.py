"""A server that stops, restarts, is suspended, recovers, or has no connection left to give."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy.exc

from hermes_orm import SessionDB
from tests.conftest import build_store
from tests.raw import Raw
from tests.reliability.faults import PASSWORD, SECRET, assert_told, assert_usable, connections
from tests.reliability.private_server import CONNECTIONS, PrivateServer, private_server

DRIVERS = ["postgresql+asyncpg", "postgresql+psycopg"]


@pytest.fixture(scope="module")
def own() -> Iterator[PrivateServer]:
    with private_server() as own:
        if own is None:
            pytest.skip("no binaries of a PostgreSQL server on this machine")
        own.server.template(build_store)
        yield own


@pytest.fixture(params=DRIVERS)
def location(request: pytest.FixtureRequest, own: PrivateServer) -> Iterator[str]:
    name = f"{own.server.prefix}_{DRIVERS.index(request.param)}"
    own.server.create(name, f"{own.server.prefix}_template")
    url = own.server.url.set(drivername=request.param, database=name, password=PASSWORD)
    yield url.render_as_string(hide_password=False)
    own.server.drop(name)


@pytest.fixture
def raw(location: str) -> Raw:
    return Raw(f"{location}?application_name=the test")


@pytest.fixture
async def db(location: str) -> AsyncIterator[SessionDB]:
    async with SessionDB(location) as db:
        await db.create_session("s", "cli")
        await asyncio.gather(*(db.session_count() for _ in range(5)))
        yield db


async def texts_of(db: SessionDB) -> list[str]:
    """Return the texts of the session's messages."""
    return [str(row["content"]) for row in await db.get_messages("s")]


async def control(own: PrivateServer, action: str) -> None:
    await asyncio.to_thread(own.control, action)


@pytest.mark.parametrize("mode", ["fast", "immediate"])
async def test_a_restart_between_calls_is_not_noticed(
    db: SessionDB, own: PrivateServer, raw: Raw, mode: str
) -> None:
    await control(own, f"restart {mode}")
    calls = (db.append_message("s", "user", str(number)) for number in range(5))
    await asyncio.gather(*calls, *(db.get_session("s") for _ in range(5)))
    assert sorted(await texts_of(db)) == list("01234")
    await assert_usable(db, raw)


@pytest.mark.parametrize("seconds", [1.0, pytest.param(10.0, marks=pytest.mark.full)])
async def test_writers_go_on_after_restarts(
    db: SessionDB, own: PrivateServer, raw: Raw, seconds: float
) -> None:
    stored: list[str] = []
    unknown: list[str] = []
    is_over = asyncio.Event()

    async def write(name: int) -> None:
        number = 0
        while not is_over.is_set():
            text = f"{name} {number}"
            number += 1
            try:
                await db.append_message("s", "user", text)
                stored.append(text)
            except sqlalchemy.exc.DBAPIError as error:
                assert_told(error)
                unknown.append(text)
                await asyncio.sleep(0.05)

    async with asyncio.TaskGroup() as tasks:
        for name in range(4):
            tasks.create_task(write(name))
        for mode in ("fast", "immediate") * int(seconds):
            await asyncio.sleep(0.4)
            await control(own, f"restart {mode}")
        await asyncio.sleep(0.4)
        is_over.set()
    found = await texts_of(db)
    assert len(set(found)) == len(found)
    assert set(stored) <= set(found) <= {*stored, *unknown}
    session: Any = await db.get_session("s")
    assert session["message_count"] == len(found)
    for name in range(4):
        own_texts = [text for text in found if text.split()[0] == str(name)]
        assert own_texts == sorted(own_texts, key=lambda text: int(text.split()[1]))
    await assert_usable(db, raw)
    print(f"{len(stored)} stored, {len(unknown)} unknown, {len(found)} found")  # noqa: T201


async def test_a_server_that_is_stopped(db: SessionDB, own: PrivateServer, raw: Raw) -> None:
    async def block() -> None:
        async with db.transaction() as unit:
            await unit.append_message("s", "user", SECRET)
            await control(own, "stop fast")
            for call, state in ((unit.get_session, None), (db.get_session, "08001")):
                with pytest.raises(sqlalchemy.exc.OperationalError) as caught:
                    await call("s")
                assert_told(caught.value, state)

    try:
        with pytest.raises(RuntimeError, match="leave its block"):
            await block()
    finally:
        await control(own, "start")
    assert await db.message_count("s") == 0
    await assert_usable(db, raw)


async def test_a_server_that_shuts_down_takes_nobody(
    db: SessionDB, own: PrivateServer, location: str, raw: Raw
) -> None:
    stopping = asyncio.create_task(control(own, "stop smart"))  # when all have gone
    try:
        while True:
            try:
                psycopg.connect(own.server.location("postgres", "postgresql")).close()
            except psycopg.OperationalError:
                break
            await asyncio.sleep(0.05)
        async with SessionDB(location) as late:
            with pytest.raises(sqlalchemy.exc.OperationalError, match="shutting down") as caught:
                await late.get_meta("k")
        assert_told(caught.value)  # psycopg knows no SQLSTATE of such a refusal
        await db.append_message("s", "user", "who is here may stay")
    finally:
        await db.database._transport._engine.dispose()  # type: ignore[union-attr]
        await stopping
        await control(own, "start")
    assert await db.message_count("s") == 1
    await assert_usable(db, raw)


@pytest.mark.parametrize("seconds", [0.7, pytest.param(5.0, marks=pytest.mark.full)])
async def test_a_suspended_server_is_waited_for(
    db: SessionDB, own: PrivateServer, raw: Raw, seconds: float
) -> None:
    with own.suspended():
        calls = [asyncio.create_task(db.append_message("s", "user", str(n))) for n in range(8)]
        calls.append(asyncio.create_task(db.append_message("s", "user", "cancelled")))
        await asyncio.sleep(seconds)
        assert not any(call.done() for call in calls)
        calls[-1].cancel()
        await asyncio.sleep(0.1)
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(results.pop(), asyncio.CancelledError)
    assert not [result for result in results if isinstance(result, BaseException)]
    texts = await texts_of(db)
    assert sorted(set(texts) - {"cancelled"}) == sorted(map(str, range(8)))
    assert len(set(texts)) == len(texts)
    await assert_usable(db, raw)


async def test_a_server_in_recovery_is_read_until_it_is_promoted(
    db: SessionDB, own: PrivateServer, location: str, raw: Raw
) -> None:
    await asyncio.to_thread(own.become_standby)
    try:
        async with SessionDB(location, read_only=True) as reader:  # engine 5.4
            assert await reader.session_count() == 1
        assert await db.session_count() == 1
        with pytest.raises(sqlalchemy.exc.DBAPIError) as caught:
            await db.append_message("s", "user", SECRET)
        assert_told(caught.value, "25006", "disk")
        with pytest.raises(sqlalchemy.exc.DBAPIError) as caught:
            await db.delete_session("s")
        assert_told(caught.value, "25006", "disk")
    finally:
        await control(own, "promote")
    await db.append_message("s", "user", "promoted")
    assert await db.message_count("s") == 1
    await assert_usable(db, raw)


@pytest.mark.parametrize(
    ("stores", "calls"), [(4, 10), pytest.param(20, 20, marks=pytest.mark.full)]
)
async def test_many_stores_keep_to_their_budget(
    own: PrivateServer, location: str, raw: Raw, hermes_home: Path, stores: int, calls: int
) -> None:  # field report N14
    size, overflow = 1, 1
    configure(hermes_home, f"pool_size: {size}, max_overflow: {overflow}, pool_timeout: 60")
    opened = [SessionDB(location) for _ in range(stores)]
    await opened[0].create_session("s", "cli")
    most = 0
    is_over = asyncio.Event()

    async def watch() -> None:
        nonlocal most
        while not is_over.is_set():
            most = max(most, await connections(raw))
            await asyncio.sleep(0.02)

    async def use(number: int, store: SessionDB) -> None:
        await store.append_message("s", "user", str(number))
        await store.get_session("s")
        await store.search_messages(str(number))

    watching = asyncio.create_task(watch())
    await asyncio.gather(*(use(n, store) for store in opened for n in range(calls)))
    is_over.set()
    await watching
    assert stores <= most <= stores * (size + overflow)
    assert await opened[0].message_count("s") == stores * calls
    await asyncio.gather(*(store.close() for store in opened))
    assert await connections(raw) == 0
    print(f"{most} connections of {stores} stores")  # noqa: T201


async def test_a_server_without_connections_to_give(
    own: PrivateServer, location: str, raw: Raw, hermes_home: Path
) -> None:
    others = [Holder(own) for _ in range(CONNECTIONS)]
    try:
        held = sum(holder.is_connected for holder in others)
        assert held >= CONNECTIONS - 2
        async with SessionDB(location) as db:
            with pytest.raises(sqlalchemy.exc.OperationalError, match="too many clients") as caught:
                await db.get_meta("k")
            assert_told(caught.value)
            for holder in others:
                holder.close()
            await asyncio.sleep(0.1)
            assert await db.get_meta("k") is None
            await assert_usable(db, raw)
    finally:
        for holder in others:
            holder.close()


class Holder:
    """A connection of somebody else, if there was one to be had."""

    def __init__(self, own: PrivateServer) -> None:
        try:
            self._connection: Any = psycopg.connect(own.server.location("postgres", "postgresql"))
        except psycopg.OperationalError:
            self._connection = None
        self.is_connected = self._connection is not None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()


def configure(home: Path, options: str) -> None:
    home.mkdir(exist_ok=True)
    (home / "config.yaml").write_text(f"database: {{postgres: {{{options}}}}}")
