"""Units of work on PostgreSQL: round trips, pool, retries, dead connections, error texts."""

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy.exc
from sqlalchemy import Select, bindparam, func, literal_column, select, update

from hermes_orm import SessionDB
from hermes_orm.database import Transaction
from hermes_orm.dialects import Prepared
from hermes_orm.dialects.postgresql.permits import Permits
from hermes_orm.errors import SchemaError
from hermes_orm.models import StateMeta
from hermes_orm.repositories.meta import SET_META
from tests.raw import Raw

SHOW = Prepared(select(func.current_setting(bindparam("name"))))
SLEEP = Prepared(select(func.pg_sleep(bindparam("seconds", type_=sqlalchemy.Double()))))
PID = Prepared(select(func.pg_backend_pid()))
TOUCH = Prepared(
    update(StateMeta).where(StateMeta.key == bindparam("of")).values(value=StateMeta.value + "+")
)


@pytest.fixture
def empty(request: pytest.FixtureRequest, make_location: Callable[..., str]) -> str:
    """An empty database; asyncpg is enough where only our own code decides."""
    return make_location("postgresql+asyncpg", empty=True)


@pytest.fixture
def configure(hermes_home: Path) -> Callable[[str], None]:
    def write(text: str) -> None:
        hermes_home.mkdir(exist_ok=True)
        (hermes_home / "config.yaml").write_text(f"database: {{postgres: {text}}}")

    return write


@pytest.fixture
async def db(location: str) -> AsyncIterator[SessionDB]:
    async with SessionDB(location) as db:
        await db.set_meta("k", "v")
        yield db


def touch(tx: Transaction) -> None:
    tx.run(TOUCH, {"of": "k"})


async def test_start_up_values_and_what_wins_over_them(location: str, configure: Any) -> None:
    async def shown() -> list[str]:
        async with SessionDB(location) as db:
            names = ("jit", "lock_timeout", "application_name")
            return await db.database.read(
                lambda tx: [tx.scalar(SHOW, {"name": name}) for name in names]
            )

    assert await shown() == ["off", "1s", "hermes_orm"]
    if "asyncpg" in location:
        configure('{connect_args: {server_settings: {lock_timeout: "5000"}}}')
    else:
        configure('{connect_args: {options: "-c lock_timeout=5000"}}')
    assert await shown() == ["off", "5s", "hermes_orm"]
    configure("{pooler: true}")
    assert (await shown())[1] == "0"


async def test_one_statement_is_one_round_trip_and_a_second_write_is_refused(
    db: SessionDB,
) -> None:
    def twice(tx: Transaction) -> None:
        touch(tx)
        touch(tx)

    with pytest.raises(AssertionError, match="second modifying statement"):
        await db.database.write(twice, scope="statement")
    await db.database.write(twice)
    assert await db.get_meta("k") == "v+++"  # the first of the refused pair had committed by itself


async def test_a_snapshot_sees_one_moment(db: SessionDB, raw: Raw) -> None:
    def unit(tx: Transaction) -> tuple[Any, Any]:
        first = tx.scalar(VALUE)
        tx.first(SLEEP, {"seconds": 0.3})
        return first, tx.scalar(VALUE)

    reading = asyncio.create_task(db.database.read(unit))
    await asyncio.sleep(0.1)
    await raw.execute("UPDATE state_meta SET value = 'later' WHERE key = 'k'")
    assert await reading == ("v", "v")


VALUE = Prepared(select(StateMeta.value).where(StateMeta.key == "k"))


async def test_a_lock_timeout_is_retried_until_patience_ends(
    db: SessionDB, open_store: Callable[..., SessionDB]
) -> None:
    holder = open_store()

    def hold(seconds: float) -> Callable[[Transaction], None]:
        def unit(tx: Transaction) -> None:
            touch(tx)
            tx.first(SLEEP, {"seconds": seconds})

        return unit

    held = asyncio.create_task(holder.database.write(hold(1.5)))
    await asyncio.sleep(0.2)
    await db.database.write(touch)  # waits longer than one lock_timeout of a second
    await held
    assert await db.get_meta("k") == "v++"

    held = asyncio.create_task(holder.database.write(hold(3)))
    await asyncio.sleep(0.2)
    began = time.monotonic()
    with pytest.raises(sqlite3.OperationalError, match="database is locked"):
        await db.database.write(touch, patience=0.5)
    assert time.monotonic() - began < 2
    held.cancel()
    with pytest.raises(asyncio.CancelledError):
        await held
    assert await db.get_meta("k") == "v++"


@pytest.mark.parametrize("idle", [0.0, 1.2])
async def test_a_terminated_connection_is_replaced(db: SessionDB, raw: Raw, idle: float) -> None:
    pid = await db.database.read(lambda tx: tx.scalar(PID))
    await raw.fetch("SELECT pg_terminate_backend(?)", pid)
    await asyncio.sleep(idle)
    assert await db.get_meta("k") == "v"
    await db.set_meta("k", "w")


async def test_a_write_meets_no_connection_that_the_server_closed(db: SessionDB, raw: Raw) -> None:
    pid = await db.database.read(lambda tx: tx.scalar(PID))
    await raw.fetch("SELECT pg_terminate_backend(?)", pid)
    await asyncio.sleep(0.1)
    await db.set_meta("k", "w")
    assert await db.get_meta("k") == "w"


async def test_a_connection_lost_within_a_unit_raises_and_is_replaced(
    db: SessionDB, raw: Raw
) -> None:
    pid = await db.database.read(lambda tx: tx.scalar(PID))

    def unit(tx: Transaction) -> None:
        touch(tx)
        tx.first(SLEEP, {"seconds": 5})

    writing = asyncio.create_task(db.database.write(unit))
    await asyncio.sleep(0.3)
    await raw.fetch("SELECT pg_terminate_backend(?)", pid)
    with pytest.raises(sqlalchemy.exc.DBAPIError):
        await writing
    assert await db.get_meta("k") == "v"


async def test_error_texts_show_neither_parameters_nor_detail(db: SessionDB, raw: Raw) -> None:
    await raw.execute("CREATE UNIQUE INDEX one_value ON state_meta (value)")
    with pytest.raises(sqlalchemy.exc.IntegrityError) as caught:
        await db.set_meta("other", "v")
    error = caught.value
    assert isinstance(error, sqlite3.IntegrityError)
    assert error.orig.sqlstate == "23505"  # type: ignore[union-attr]
    chain = f"{error!s} {error!r} {error.__cause__!r} {error.orig!r}"
    assert "one_value" in chain
    assert "DETAIL" not in chain
    assert "=(v)" not in chain
    assert "INSERT" not in chain
    assert "sqlalche.me" not in chain
    assert error.__context__ is None  # nothing that shows it anyway


async def test_the_password_is_never_shown(location: str) -> None:
    secret = location.replace("//", "//somebody:s3cret@", 1).replace("s3cret@postgres@", "s3cret@")
    secret = secret.partition("@")[0] + "@127.0.0.1:1/nowhere"
    db = SessionDB(secret)
    assert "s3cret" not in repr(db)
    with pytest.raises((OSError, sqlalchemy.exc.OperationalError)) as caught:
        await db.get_meta("k")
    error: BaseException | None = caught.value
    while error is not None:
        assert "s3cret" not in f"{error!r} {error} {vars(error)}"
        error = error.__cause__ or error.__context__
    await db.close()


async def test_an_exhausted_pool_times_out_and_recovers(location: str, configure: Any) -> None:
    configure("{pool_size: 1, max_overflow: 0, pool_timeout: 0.1}")
    async with SessionDB(location) as db:
        await db.get_meta("k")
        held = asyncio.create_task(db.database.read(lambda tx: tx.first(SLEEP, {"seconds": 0.5})))
        await asyncio.sleep(0.1)
        with pytest.raises(sqlalchemy.exc.TimeoutError):
            await db.get_meta("k")
        await held
        assert await db.get_meta("k") is None


async def test_cancelled_units_leave_the_pool_clean(location: str, configure: Any) -> None:
    configure("{pool_size: 1, max_overflow: 0, pool_timeout: 5}")
    async with SessionDB(location) as db:
        await db.set_meta("k", "v")

        def unit(tx: Transaction) -> None:
            touch(tx)
            tx.first(SLEEP, {"seconds": 5})

        for delay in (0.0, 0.001, 0.003, 0.01, 0.05):
            task = asyncio.create_task(db.database.write(unit))
            await asyncio.sleep(delay)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await db.get_meta("k") == "v"


async def test_permits_are_granted_in_order_and_overflow_only_after_a_while() -> None:
    permits = Permits(size=1, overflow=1, timeout=0.4)
    await permits.acquire()
    order = []

    async def wait(name: str) -> None:
        await permits.acquire()
        order.append(name)

    first, second = asyncio.create_task(wait("first")), asyncio.create_task(wait("second"))
    await asyncio.sleep(0.05)
    assert order == []
    permits.release()
    await first
    await second  # takes the overflow permit after half of the time-out
    assert order == ["first", "second"]
    with pytest.raises(sqlalchemy.exc.TimeoutError, match="pool_timeout"):
        await permits.acquire()
    third = asyncio.create_task(wait("third"))
    await asyncio.sleep(0.05)
    third.cancel()
    permits.release()
    permits.release()
    await permits.acquire()


async def test_concurrent_first_opens_create_one_schema(empty: str) -> None:
    stores = [SessionDB(empty) for _ in range(6)]
    try:
        assert await asyncio.gather(*(db.get_meta("k") for db in stores)) == [None] * 6
    finally:
        await asyncio.gather(*(db.close() for db in stores))


async def test_a_foreign_schema_is_refused_untouched(empty: str) -> None:
    raw = Raw(empty)
    await raw.execute("CREATE TABLE unrelated (id integer)")
    async with SessionDB(empty) as db:
        with pytest.raises(SchemaError, match="without schema_version"):
            await db.get_meta("k")
    tables = await raw.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
    assert tables == [("unrelated",)]


async def test_other_revisions_are_refused(location: str, raw: Raw) -> None:
    await raw.execute("UPDATE hermes_alembic_version SET version_num = '0099'")
    for read_only in (False, True):
        async with SessionDB(location, read_only=read_only) as db:
            with pytest.raises(SchemaError, match=r"0099.*newer"):
                await db.get_meta("k")


async def test_a_read_only_store_creates_nothing(empty: str) -> None:
    async with SessionDB(empty, read_only=True) as db:
        with pytest.raises(SchemaError, match="initialized schema"):
            await db.get_meta("k")
    assert await Raw(empty).fetch("SELECT 1 FROM pg_tables WHERE schemaname = 'public'") == []


async def test_a_held_advisory_lock_delays_creation(empty: str) -> None:
    blocker = asyncio.create_task(
        Raw(empty).fetch("SELECT pg_advisory_lock(731948251), pg_sleep(0.8)")
    )
    await asyncio.sleep(0.3)
    async with SessionDB(empty) as db:
        first = asyncio.create_task(db.get_meta("k"))
        await asyncio.sleep(0.1)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert await db.get_meta("k") is None
    await blocker


async def test_one_schema_per_profile(location: str, configure: Any) -> None:
    raw = Raw(location)
    for name in ("agent_a", "agent_b"):
        await raw.execute(f"CREATE SCHEMA {name}")
    async with SessionDB(f"{location}?options=-csearch_path=agent_a") as a:
        await a.set_meta("who", "a")
    configure("{schema: agent_b}")
    async with SessionDB(location) as b:
        assert await b.get_meta("who") is None
    with pytest.raises(ValueError, match=r"schema|search_path"):
        async with SessionDB(f"{location}?options=-csearch_path=agent_a") as both:
            await both.get_meta("who")
    assert await raw.fetch("SELECT value FROM agent_a.state_meta WHERE key = 'who'") == [("a",)]


def test_a_prepared_statement_is_compiled_once() -> None:
    from sqlalchemy.dialects.postgresql import asyncpg

    statement = Prepared(select(literal_column("1")))
    new: Any = asyncpg.PGDialect_asyncpg
    one, other = new(), new()
    assert statement.compiled(one) is statement.compiled(other)
    assert SET_META.modifies
    assert not statement.modifies


def test_a_statement_given_as_a_function_is_built_when_it_is_needed() -> None:
    built: list[Select[Any]] = []

    def build() -> Select[Any]:
        built.append(select(literal_column("1")))
        return built[-1]

    statement = Prepared(build)
    assert not built
    assert not statement.modifies and statement.statement is built[0]
    assert len(built) == 1
