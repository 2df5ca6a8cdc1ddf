"""How often an operation waits for the server, counted on the wire."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

import pytest
from sqlalchemy import make_url

from hermes_orm import SessionDB
from tests.contract.turns import user

STATEMENTS_BEFORE_PREPARING = 6  # of psycopg; asyncpg prepares at once


class Wire:
    """Passes bytes on between clients and the server, and counts how often a client speaks up."""

    def __init__(self, host: str, port: int) -> None:
        self.round_trips = 0
        self._target = host, port
        self._pumps: set[asyncio.Task[None]] = set()

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one client."""
        from_server, to_server = await asyncio.open_connection(*self._target)
        is_answering = asyncio.Event()
        is_answering.set()

        def asked() -> None:
            self.round_trips += is_answering.is_set()
            is_answering.clear()

        for source, sink, noted in (
            (reader, to_server, asked),
            (from_server, writer, is_answering.set),
        ):
            pump = asyncio.create_task(_pump(source, sink, noted))
            self._pumps.add(pump)
            pump.add_done_callback(self._pumps.discard)

    async def close(self) -> None:
        """Wait until both sides have hung up."""
        await asyncio.gather(*self._pumps)


async def _pump(
    source: asyncio.StreamReader, sink: asyncio.StreamWriter, noted: Callable[[], None]
) -> None:
    with suppress(ConnectionError):
        while part := await source.read(1 << 16):
            noted()
            sink.write(part)
            await sink.drain()
    sink.close()


@pytest.fixture(params=["postgresql+asyncpg", "postgresql+psycopg"])
async def wired(
    request: pytest.FixtureRequest, make_location: Callable[..., str]
) -> AsyncIterator[tuple[SessionDB, Wire]]:
    """A store with the session `s`, and the wire to its server."""
    url = make_url(make_location(request.param))
    assert url.host is not None
    wire = Wire(url.host, url.port or 5432)
    server = await asyncio.start_server(wire.connected, "127.0.0.1")
    url = url.set(host="127.0.0.1", port=server.sockets[0].getsockname()[1])
    async with server, SessionDB(url.render_as_string(hide_password=False)) as db:
        await db.create_session("s", "cli")
        yield db, wire
    await wire.close()


Operation = Callable[[SessionDB], Any]
BATCH = [user("x")] * 100


@pytest.mark.parametrize(
    "operation",
    [
        pytest.param(lambda db: db.append_message("s", "user", "x"), id="append"),
        pytest.param(lambda db: db.append_messages_batch("s", BATCH), id="batch"),
        pytest.param(lambda db: db.get_messages("s"), id="read"),
        pytest.param(lambda db: db.get_messages("s", latest=True, limit=9), id="page"),
        pytest.param(lambda db: db.get_messages_as_conversation("s"), id="conversation"),
        pytest.param(lambda db: db.get_resume_conversations("s"), id="resume"),
        pytest.param(lambda db: db.get_anchored_view("s", 1), id="view"),
        pytest.param(lambda db: db.list_sessions_rich(include_pinned=True), id="list"),
        pytest.param(lambda db: db.search_sessions_by_id("s"), id="part of an id"),
        pytest.param(lambda db: db.set_session_title("s", "T"), id="title"),
        pytest.param(lambda db: db.resolve_session_by_title("T"), id="by title"),
        pytest.param(lambda db: db.set_session_archived("s", True), id="flag"),
        pytest.param(lambda db: db.get_session_activity("s"), id="activity"),
        pytest.param(lambda db: db.update_token_counts("s", input_tokens=1), id="usage"),
        pytest.param(lambda db: db.record_auxiliary_usage("s", "title"), id="auxiliary usage"),
        pytest.param(lambda db: db.try_acquire_compression_lock("s", "A"), id="lock"),
        pytest.param(lambda db: db.try_acquire_session_turn_lease("s", "A"), id="lease"),
    ],
)
async def test_operation_takes_one_round_trip(
    wired: tuple[SessionDB, Wire], operation: Operation
) -> None:
    db, wire = wired
    for _ in range(STATEMENTS_BEFORE_PREPARING):
        await operation(db)
    before = wire.round_trips
    await operation(db)
    assert wire.round_trips - before == 1


async def test_a_deletion_sends_all_its_changes_at_once(wired: tuple[SessionDB, Wire]) -> None:
    db, wire = wired
    for _ in range(STATEMENTS_BEFORE_PREPARING):
        await db.delete_session("s")
        await db.create_session("s", "cli")
    before = wire.round_trips
    assert await db.delete_session("s")
    # BEGIN, the session, its delegates, the lock, all changes, COMMIT.
    assert wire.round_trips - before == 6
