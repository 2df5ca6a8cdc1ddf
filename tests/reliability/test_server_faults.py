"""Faults of a PostgreSQL server: ended connections, refused statements, waits that are too long.

After each: the right error, nothing half-written, nothing leaked, and the same store goes on.
"""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy.exc
from sqlalchemy import Double, bindparam, func, select, update

from hermes_orm import SessionDB, is_disk_full_error
from hermes_orm.database import Transaction
from hermes_orm.dialects import Prepared
from hermes_orm.models import StateMeta
from tests.contract.turns import user
from tests.raw import Raw
from tests.reliability.faults import (
    SECRET,
    assert_told,
    assert_usable,
    connections,
    location,
    raw,
    terminate,
    until,
)

__all__ = ["location", "raw"]

SLEEP = Prepared(select(func.pg_sleep(bindparam("seconds", type_=Double()))))
LOCK = Prepared(select(StateMeta.value).where(StateMeta.key == bindparam("key")).with_for_update())
TOUCH = Prepared(
    update(StateMeta).where(StateMeta.key == bindparam("of")).values(value=StateMeta.value + "+")
)


@pytest.fixture
async def db(location: str) -> AsyncIterator[SessionDB]:
    async with SessionDB(location) as db:
        await db.create_session("s", "cli")
        yield db


def sleep(tx: Transaction) -> None:
    tx.first(SLEEP, {"seconds": 10})


async def failure(call: Awaitable[Any]) -> BaseException:
    """Return the error of a call, which must have one."""
    with pytest.raises(sqlalchemy.exc.SQLAlchemyError) as caught:
        await asyncio.wait_for(call, 10)
    return caught.value


# Ended connections (field report N10)


@pytest.mark.parametrize("rest", [0.0, 1.2])
async def test_all_idle_connections_are_ended(db: SessionDB, raw: Raw, rest: float) -> None:
    sleeps = (db.database.read(lambda tx: tx.first(SLEEP, {"seconds": 0.2})) for _ in range(5))
    await asyncio.gather(*sleeps)
    assert await terminate(raw) == 5
    await asyncio.sleep(rest)
    calls = [db.append_message("s", "user", str(number)) for number in range(5)]
    await asyncio.gather(*calls, *(db.get_session("s") for _ in range(5)))
    rows = await db.get_messages("s")
    assert sorted(str(row["content"]) for row in rows) == list("01234")  # engine 8.14
    await assert_usable(db, raw)


async def test_without_a_ping_the_second_call_succeeds(
    location: str, raw: Raw, hermes_home: Path
) -> None:  # engine 5.7
    hermes_home.mkdir()
    (hermes_home / "config.yaml").write_text("database: {postgres: {pool_pre_ping: false}}")
    async with SessionDB(location) as db:
        await db.create_session("s", "cli")
        assert await terminate(raw) == 1
        assert_told(await failure(db.append_message("s", "user", SECRET)))
        await db.append_message("s", "user", "again")
        assert await db.message_count("s") == 1
        await assert_usable(db, raw)


async def test_connections_are_ended_amid_statements(db: SessionDB, raw: Raw) -> None:
    def unit(tx: Transaction) -> None:
        tx.run(TOUCH, {"of": "k"})
        sleep(tx)

    await db.set_meta("k", "before")
    reads = [asyncio.create_task(db.database.read(sleep, scope="statement")) for _ in range(2)]
    writes = [asyncio.create_task(db.database.write(unit)) for _ in range(2)]
    await until(raw, "state = 'active'", 4)
    assert await terminate(raw) >= 4
    for task in writes:
        assert_told(await failure(task))
    # A read is repeated once: what it does is known.
    await until(raw, "state = 'active'", 2)
    assert await terminate(raw) >= 2
    for task in reads:
        assert_told(await failure(task))
    assert await db.get_meta("k") == "before"
    await assert_usable(db, raw)


async def test_a_write_that_was_sent_is_not_repeated(db: SessionDB, raw: Raw) -> None:
    async with db.transaction() as unit:
        await unit.append_message("s", "user", "first")
        appending = asyncio.create_task(db.append_message("s", "user", SECRET))
        await until(raw, "wait_event_type = 'Lock'")
        await raw.fetch(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
            "WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        assert_told(await failure(appending))
    assert await db.message_count("s") == 1
    await assert_usable(db, raw)


async def test_connections_of_open_blocks_are_ended(db: SessionDB, raw: Raw) -> None:
    async def block() -> None:
        async with db.transaction() as unit:
            await unit.append_message("s", "user", SECRET)
            assert await terminate(raw) == 1
            await unit.append_message("s", "user", SECRET)

    async def block_that_ends() -> None:
        async with db.transaction() as unit:
            await unit.append_message("s", "user", SECRET)
            assert await terminate(raw) == 1

    async def lent() -> None:
        async def call(connection: Any) -> None:
            await connection.exec_driver_sql("UPDATE sessions SET title = 'half'")
            assert await terminate(raw) == 1
            await connection.exec_driver_sql("UPDATE sessions SET title = 'whole'")

        await db._write(call)

    for broken in (block, block_that_ends, lent):
        error = await failure(broken())
        if broken is not lent:  # what a host does with its own SQL is told as it is
            assert_told(error)
        assert await db.message_count("s") == 0
        assert await db.get_session_title("s") is None
        await assert_usable(db, raw)


async def test_connections_are_ended_amid_an_export(db: SessionDB, raw: Raw) -> None:
    for number in range(220):
        await db.create_session(f"s{number:03}", "cli")
    exported = []
    async for session in db.iter_export():
        exported.append(session["id"])
        if len(exported) % 100 == 1:
            await terminate(raw)
    assert len(exported) == 221


async def test_the_connection_of_a_snapshot_is_ended(db: SessionDB, raw: Raw) -> None:
    held = await db.database._transport.snapshot()  # type: ignore[union-attr]
    try:
        await held.read(lambda tx: tx.first(SLEEP, {"seconds": 0}), scope="snapshot", patience=1)
        await terminate(raw)
        reading = held.read(sleep, scope="snapshot", patience=1)
        assert_told(await failure(reading))
    finally:
        await held.end(commits=False)
    await assert_usable(db, raw)


async def test_the_connection_of_maintenance_is_ended(db: SessionDB, raw: Raw) -> None:
    async with db.transaction() as unit:
        await unit.append_message("s", "user", "locks a row")
        # The index is not built anew before this transaction ends.
        rebuilding = asyncio.create_task(db.rebuild_fts())
        await until(raw, "query LIKE 'REINDEX%' AND wait_event_type = 'Lock'")
        await raw.fetch(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
            "WHERE datname = current_database() AND query LIKE 'REINDEX%'"
        )
        assert_told(await failure(rebuilding))
    assert await db.vacuum() == 1
    await db.rebuild_fts()
    assert await raw.fetch("SELECT indexrelid FROM pg_index WHERE NOT indisvalid") == []
    assert len(await db.search_messages("locks")) == 1
    await assert_usable(db, raw)


async def test_the_connection_of_the_watcher_is_ended(
    db: SessionDB, raw: Raw, open_store: Callable[..., SessionDB]
) -> None:
    other = open_store()
    async with db.handoff_watcher_lock() as is_held:
        assert is_held
        async with other.handoff_watcher_lock() as is_held_twice:
            assert not is_held_twice
        await terminate(raw)
        async with other.handoff_watcher_lock() as is_taken_over:
            assert is_taken_over
    await asyncio.sleep(0.1)
    assert await connections(raw) == 0
    await assert_usable(db, raw)


async def test_usage_that_is_queued_survives_an_ended_connection(db: SessionDB, raw: Raw) -> None:
    for _ in range(3):
        await terminate(raw)
        await db.queue_token_counts("s", input_tokens=1)
        assert await db.flush_token_counts()
    session: Any = await db.get_session("s")
    assert session["input_tokens"] == 3


# Statements that the server refuses


@pytest.fixture
async def refuse(raw: Raw) -> Callable[..., Awaitable[Callable[[], Awaitable[int]]]]:
    """`await refuse(sqlstate, times)`: refuse that many messages; returns a count of the tries."""

    async def refuse(sqlstate: str, times: int) -> Callable[[], Awaitable[int]]:
        await raw.execute("CREATE SEQUENCE IF NOT EXISTS tries")
        await raw.execute("ALTER SEQUENCE tries RESTART")
        await raw.execute(
            "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            f" IF nextval('tries') <= {times} THEN"
            f" RAISE 'refused by the test' USING ERRCODE = '{sqlstate}', DETAIL = NEW.content;"
            " END IF; RETURN NEW; END $$"
        )
        await raw.execute(
            "CREATE OR REPLACE TRIGGER refuse BEFORE INSERT ON messages "
            "FOR EACH ROW EXECUTE FUNCTION refuse()"
        )

        async def tries() -> int:
            return int((await raw.fetch("SELECT last_value FROM tries"))[0][0])

        return tries

    return refuse


async def test_what_may_succeed_in_a_moment_is_tried_again(
    db: SessionDB, raw: Raw, refuse: Any
) -> None:
    for sqlstate in ("40001", "40P01", "55P03"):
        tries = await refuse(sqlstate, 2)
        await db.append_message("s", "user", "hello")
        assert await tries() == 3
        await refuse(sqlstate, 2)
        await db.replace_messages("s", [user("in a transaction")])
        assert [row["content"] for row in await db.get_messages("s")] == ["in a transaction"]
        await refuse(sqlstate, 2)
        with pytest.raises(RuntimeError, match="leave its block"):
            await refused_in_a_block(db, sqlstate)
        assert await db.message_count("s") == 1
    await assert_usable(db, raw)


async def refused_in_a_block(db: SessionDB, sqlstate: str) -> None:
    async with db.transaction() as unit:  # which cannot be run again
        refused = unit.append_message("s", "user", SECRET)
        assert_told(await failure(refused), sqlstate, "locked")


CAUSES = {
    "53100": "disk",
    "58030": "disk",
    "25006": "disk",
    "XX001": "corrupt",
    "XX002": "corrupt",
    "57P01": "unknown",
    "57P03": "unknown",
    "57014": "unknown",
    "53200": "unknown",
    "53300": "unknown",
    "08006": "unknown",
}


async def test_other_refusals_are_the_callers_at_once(db: SessionDB, raw: Raw, refuse: Any) -> None:
    calls: list[Callable[[], Awaitable[Any]]] = [
        lambda: db.append_message("s", "user", SECRET),
        lambda: db.append_messages_batch("s", [user(SECRET), user("b")]),
        lambda: db.replace_messages("s", [user(SECRET)]),
    ]
    for sqlstate, cause in CAUSES.items():
        tries = await refuse(sqlstate, 99)
        for call in calls:
            error = assert_told(await failure(call()), sqlstate, cause)
            assert is_disk_full_error(error) == (sqlstate == "53100")
        assert await tries() == len(calls)
        assert await db.get_messages("s") == []
    session: Any = await db.get_session("s")
    assert session["message_count"] == 0
    await raw.execute("DROP TRIGGER refuse ON messages")
    await db.append_message("s", "user", "space is back")
    await assert_usable(db, raw)


async def test_a_deadlock_ends_in_both_writes(
    location: str, raw: Raw, open_store: Callable[..., SessionDB]
) -> None:
    # One of the two is told of the deadlock before either gives up waiting for the lock.
    db = SessionDB(f"{location}?options=-cdeadlock_timeout=50ms -clock_timeout=5000")
    runs = itertools.count()
    async with db:
        await db.set_meta("a", "")
        await db.set_meta("b", "")
        meet = asyncio.Barrier(2)

        def unit(first: str, second: str) -> Callable[[Transaction], None]:
            def run(tx: Transaction) -> None:
                tx.run(TOUCH, {"of": first})
                if next(runs) < 2:
                    tx.awaited(lambda driver: meet.wait())  # type: ignore[attr-defined]
                tx.run(TOUCH, {"of": second})

            return run

        await asyncio.gather(db.database.write(unit("a", "b")), db.database.write(unit("b", "a")))
        assert next(runs) >= 3
        assert [await db.get_meta(key) for key in "ab"] == ["++", "++"]
        await assert_usable(db, raw)


# Waits that are too long


async def test_a_statement_that_takes_too_long(location: str, raw: Raw) -> None:  # engine 8.15
    async with SessionDB(f"{location}?options=-cstatement_timeout=100") as db:
        for scope in ("statement", "snapshot"):
            error = await failure(db.database.read(sleep, scope=scope))
            assert_told(error, "57014")
        assert_told(await failure(db.database.write(sleep)), "57014")
        await assert_usable(db, raw)
        assert await db.vacuum() == 1  # which may take longer
        shown = await db._read(lambda connection: connection.scalar(sqlalchemy.text(SHOWN)))
        assert shown == "100ms"


SHOWN = "SELECT current_setting('statement_timeout')"


async def test_a_lock_that_is_held_too_long(db: SessionDB, raw: Raw) -> None:
    await db.set_meta("k", "v")
    began = time.monotonic()
    async with db.transaction() as unit:
        await unit.set_meta("k", SECRET)
        waiting = db.database.write(lambda tx: tx.run(TOUCH, {"of": "k"}), patience=0.3)
        error = assert_told(await failure(waiting), "55P03", "locked")
        assert "database is locked" in str(error)
    assert time.monotonic() - began < 3
    assert await db.get_meta("k") == SECRET
    await assert_usable(db, raw)


async def test_the_pool_is_exhausted(
    location: str, raw: Raw, hermes_home: Path
) -> None:  # engine 8.13, N14
    hermes_home.mkdir()
    (hermes_home / "config.yaml").write_text(
        "database: {postgres: {pool_size: 1, max_overflow: 1, pool_timeout: 0.2}}"
    )
    async with SessionDB(location) as db:
        await db.create_session("s", "cli")
        async with db.transaction(), asyncio.TaskGroup() as tasks:
            held = tasks.create_task(db.database.read(lambda tx: tx.first(SLEEP, {"seconds": 0.6})))
            await until(raw, "state = 'active'")
            results = await asyncio.gather(
                *(db.append_message("s", "user", SECRET) for _ in range(20)),
                return_exceptions=True,
            )
            assert {type(result) for result in results} == {sqlalchemy.exc.TimeoutError}
            assert await connections(raw) == 2
            await held
        assert await db.message_count("s") == 0
        await assert_usable(db, raw)
