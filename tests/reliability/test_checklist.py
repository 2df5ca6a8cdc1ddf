"""The production checklist of a PostgreSQL store: what is proven where, and what is proven here.

1. tests/contract/test_processes.py::test_appends_of_four_processes_are_complete_and_in_order
2. tests/contract/test_processes.py::test_appends_of_four_processes_are_complete_and_in_order
3. tests/reliability/test_kills.py::test_a_killed_writer_loses_nothing_that_was_acknowledged
4. tests/reliability/test_checklist.py::test_the_turn_of_a_worker_that_was_ended_is_taken_over
5. tests/reliability/test_checklist.py::test_turns_of_two_workers_do_not_mix
6. tests/reliability/test_checklist.py::test_the_turn_of_a_worker_that_was_ended_is_taken_over
7. tests/dialects/postgresql/test_transcript.py::test_a_lease_that_is_taken_over_meanwhile_is_lost
8. tests/contract/test_titles_setting.py::test_two_stores_set_one_title
9. tests/reliability/test_checklist.py::test_eight_agents_share_a_pool
10. tests/reliability/test_checklist.py::test_a_deletion_waits_for_an_append
11. tests/dialects/postgresql/test_units.py::test_cancelled_units_leave_the_pool_clean
12. tests/contract/test_lifecycle.py::test_a_cancelled_close_finishes_first
13. tests/reliability/test_checklist.py::test_every_operation_needs_one_connection
13. tests/reliability/test_server_faults.py::test_the_pool_is_exhausted
14. tests/reliability/test_server_faults.py::test_all_idle_connections_are_ended
15. tests/reliability/test_server_faults.py::test_a_statement_that_takes_too_long
16. tests/reliability/test_checklist.py::test_options_arrive_at_the_engine
17. tests/reliability/test_checklist.py::test_options_are_those_of_the_home_at_construction
18. tests/config/test_postgres_options.py::test_invalid_settings
19. tests/reliability/test_checklist.py::test_a_missing_driver_is_named
20. tests/dialects/postgresql/test_schema.py::test_indexes_are_those_of_sqlite
21. tests/cli/test_db.py::test_a_database_from_its_creation_to_its_repair
21. tests/migrations/test_revision_data.py::test_duplicate_titles_are_numbered
22. tests/historic/test_postgres_layout_5.py::test_failure_leaves_the_old_store
22. tests/historic/test_postgres_layout_5.py::test_what_is_not_layout_5_is_refused_untouched
23. tests/dialects/postgresql/test_units.py::test_a_foreign_schema_is_refused_untouched
23. tests/dialects/postgresql/test_units.py::test_other_revisions_are_refused
24. tests/contract/test_read_only.py::test_writes_refuse_and_reads_answer
24. tests/reliability/test_checklist.py::test_the_server_refuses_writes_of_a_read_only_store
25. tests/agents/test_real_agent.py::test_the_agent_leaves_the_same_in_this_store_and_in_its_own
26. tests/agents/test_real_agent.py::test_the_agent_leaves_the_same_in_this_store_and_in_its_own
"""

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy.exc
from sqlalchemy import text

from hermes_orm import SessionDB
from tests.contract.samples import seed
from tests.contract.test_cancellation import operations, run
from tests.raw import Raw
from tests.reliability.faults import assert_usable, location, raw, until
from tests.reliability.turns import take_a_turn
from tests.reliability.workers import Workers, answer

__all__ = ["location", "raw"]

ROOT = Path(__file__).parents[2]


def test_nothing_is_missing() -> None:
    items = re.findall(r"^(\d+)\. (\S+)::(\w+)$", __doc__, re.M)
    assert {int(number) for number, _, _ in items} == set(range(1, 27))
    for _, path, name in items:
        assert f"def {name}(" in (ROOT / path).read_text(), name


@pytest.fixture
async def db(location: str) -> AsyncIterator[SessionDB]:
    async with SessionDB(location) as db:
        await db.create_session("s", "cli")
        yield db


@pytest.fixture
def configure(hermes_home: Path) -> Callable[[str], None]:
    hermes_home.mkdir()

    def write(options: str) -> None:
        (hermes_home / "config.yaml").write_text(f"database: {{postgres: {options}}}")

    return write


async def texts_of(db: SessionDB) -> list[Any]:
    return [row["content"] for row in await db.get_messages("s")]


# Several processes


def start(workers: Workers, number: int) -> None:
    """Have a worker begin its turn, and wait until it has the turn."""
    workers.lines[number].send("begin")
    assert answer(workers.lines[number]) == b"started"


async def test_turns_of_two_workers_do_not_mix(db: SessionDB, location: str, raw: Raw) -> None:
    with Workers(take_a_turn, [(location, "A", 300.0), (location, "B", 300.0)]) as workers:
        await asyncio.to_thread(start, workers, 0)
        await asyncio.to_thread(start, workers, 1)
        waited = await asyncio.to_thread(workers.answers)
    assert waited[1] > 0.5
    assert await texts_of(db) == ["A:start", "A:end", "B:start", "B:end"]
    await assert_usable(db, raw)


@pytest.mark.parametrize("end", ["kill", "terminate"])
async def test_the_turn_of_a_worker_that_was_ended_is_taken_over(
    db: SessionDB, location: str, raw: Raw, end: str
) -> None:
    with Workers(take_a_turn, [(location, "A", 1.5)]) as workers:
        await asyncio.to_thread(start, workers, 0)
        getattr(workers.processes[0], end)()
        await asyncio.to_thread(workers.processes[0].join, 10)
        assert workers.processes[0].exitcode is not None
    assert await db.acquire_session_turn_lease("s", "B", poll_interval_seconds=0.05)
    await db.append_message("s", "user", "B", turn_lease_holder="B")
    assert await texts_of(db) == ["A:start", "B"]
    await assert_usable(db, raw)


# One process


async def test_eight_agents_share_a_pool(db: SessionDB, raw: Raw) -> None:
    async def agent(number: int) -> None:
        await db.create_session(f"s{number}", "cli")
        await db.append_message(f"s{number}", "user", "question")
        await db.append_message("s", "user", str(number))
        await db.append_message(f"s{number}", "assistant", "answer")

    await asyncio.gather(*map(agent, range(8)))
    assert [await db.message_count(f"s{number}") for number in range(8)] == [2] * 8
    assert await db.message_count("s") == 8
    await assert_usable(db, raw)


async def test_a_deletion_waits_for_an_append(db: SessionDB, raw: Raw) -> None:
    async with db.transaction() as unit:
        await unit.append_message("s", "user", "just in time")
        deleting = asyncio.create_task(db.delete_session("s"))
        await until(raw, "wait_event_type = 'Lock'")
        assert not deleting.done()
    assert await deleting is True
    assert await db.message_count() == 0
    await assert_usable(db, raw)


@pytest.mark.usefixtures("clock")
async def test_every_operation_needs_one_connection(
    location: str, raw: Raw, configure: Callable[[str], None]
) -> None:
    configure("{pool_size: 1, max_overflow: 0, pool_timeout: 0.1}")
    async with SessionDB(location) as db:
        await seed(db)
        for name in operations():
            try:
                await asyncio.wait_for(run(db, name), 20)
            except (sqlalchemy.exc.TimeoutError, TimeoutError):
                pytest.fail(f"{name} wants a second connection while it has one")
            except (ValueError, sqlalchemy.exc.IntegrityError):
                continue  # what it is called with is gone: another operation had its turn
        await assert_usable(db, raw)


async def test_options_arrive_at_the_engine(
    location: str, configure: Callable[[str], None]
) -> None:
    arguments = (
        '{server_settings: {application_name: "worker 7"}}'
        if "asyncpg" in location
        else '{application_name: "worker 7"}'
    )
    configure(
        "{pool_size: 2, max_overflow: 3, pool_timeout: 4.5, pool_use_lifo: true, "
        f"pool_recycle: 60, pool_pre_ping: false, connect_args: {arguments}}}"
    )
    async with SessionDB(location) as db:
        await db.session_count()
        transport: Any = db.database._transport
        pool = transport._engine.pool
        assert (pool.size(), pool._max_overflow, pool._timeout) == (2, 3, 4.5)
        assert (pool._recycle, pool._pool.use_lifo, pool._pre_ping) == (60, True, False)
        assert transport._options.ping is False
        shown = await db._read(lambda connection: connection.scalar(text(SHOWN)))
        assert shown == "worker 7"


SHOWN = "SELECT current_setting('application_name')"


async def test_options_are_those_of_the_home_at_construction(
    location: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def store(home: str, size: object) -> SessionDB:
        write(home, size)
        monkeypatch.setenv("HERMES_HOME", str(tmp_path / home))
        return SessionDB(location)

    def write(home: str, size: object) -> None:
        (tmp_path / home).mkdir(exist_ok=True)
        (tmp_path / home / "config.yaml").write_text(
            f"database: {{postgres: {{pool_size: {size}}}}}"
        )

    def size(db: SessionDB) -> Any:
        return db.database._transport._engine.pool.size()  # type: ignore[union-attr]

    async with store("one", 1) as one, store("two", 2) as two:
        await asyncio.gather(one.session_count(), two.session_count())
        assert (size(one), size(two)) == (1, 2)
        write("one", 3)
        await one.session_count()
        assert size(one) == 1
    async with store("one", 3) as later:
        await later.session_count()
        assert size(later) == 3
    async with store("wrong", "many") as corrected:
        with pytest.raises(ValueError, match="pool_size must be an integer"):
            await corrected.session_count()
        write("wrong", 4)
        await corrected.session_count()
        assert size(corrected) == 4


async def test_a_missing_driver_is_named(location: str, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = location.partition("://")[0].partition("+")[2]
    for name in [name for name in sys.modules if name.partition(".")[0] == driver]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, driver, None)
    db = SessionDB(location)
    assert "s3cret" not in repr(db) and db.database._transport is None
    extra = "postgres" if driver == "asyncpg" else "psycopg"
    with pytest.raises(ImportError, match=rf"hermes-orm\[{extra}\]"):
        await db.session_count()
    await db.close()


async def test_the_server_refuses_writes_of_a_read_only_store(db: SessionDB, location: str) -> None:
    async with SessionDB(location, read_only=True) as reader:
        assert await reader.session_count() == 1

        async def write(connection: Any) -> None:
            await connection.exec_driver_sql("DELETE FROM sessions")

        async def lent() -> Any:
            with pytest.raises(sqlalchemy.exc.DBAPIError) as caught:
                await reader._read(write)
            return caught.value.orig

        for refused in await asyncio.gather(*(lent() for _ in range(3))):
            assert getattr(refused, "sqlstate", None) == "25006"
    assert await db.session_count() == 1
