"""Every operation, cancelled at each of its awaits or undone with its transaction.

All or nothing, and nothing is left behind.
"""

import asyncio
import functools
import inspect
import itertools
import logging
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from hermes_orm import SessionDB
from tests.contract.samples import SAMPLES, completed, seed
from tests.contract.steps import awaits_of, cancelled_at
from tests.contract.tables import Tables

ONE_CONNECTION = """
database:
  postgres: {pool_size: 1, max_overflow: 0, pool_timeout: 5}
"""
"""A connection that is not given back is missed at once."""
WITHIN = 20.0
HELD = """
SELECT state, query FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND state <> 'idle'
UNION ALL SELECT mode, locktype FROM pg_locks JOIN pg_database ON pg_database.oid = database
WHERE datname = current_database() AND pid <> pg_backend_pid()
"""
ELSEWHERE = {"close", "transaction"}
"""Tested in test_lifecycle and test_transaction."""
WAITING = {"acquire_session_turn_lease", "flush_token_counts", "handoff_watcher_lock"}

logger = logging.getLogger(__name__)


def operations() -> list[str]:
    """Return the names of all that is public and does I/O, as the class has them."""
    return [
        name
        for name, method in inspect.getmembers_static(SessionDB, inspect.isfunction)
        if not name.startswith("__") and name not in ELSEWHERE and does_io(method)
    ]


def does_io(method: Any) -> bool:
    returned = str(inspect.signature(method).return_annotation)
    return inspect.iscoroutinefunction(method) or returned.startswith(("Async", "Awaitable"))


async def run(db: Any, name: str) -> Any:
    """Await the sample of an operation."""
    sample = SAMPLES[name]
    return await completed(getattr(db, name)(*sample.args, **sample.kwargs))


@pytest.fixture
async def tables(hermes_home: Path, clock: Any, db: Any, location: str) -> Any:
    hermes_home.mkdir()
    (hermes_home / "config.yaml").write_text(ONE_CONNECTION)
    await seed(db)
    tables = Tables(location)
    yield tables
    tables.close()


async def works(db: Any) -> None:
    """The store reads, takes the write lock, and has no task of the call left."""
    await db.flush_token_counts()
    await db.reopen_session("no such session")
    await db.get_meta("k")
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        await asyncio.wait(others, timeout=WITHIN)


def test_every_operation_has_a_sample() -> None:
    missing = [name for name in operations() if name not in SAMPLES]
    assert not missing, f"add a call of each to SAMPLES in tests/contract/samples.py: {missing}"


async def test_undone_with_its_transaction(db: Any, tables: Tables) -> None:
    refused = {}
    for name in filter(SAMPLES.__contains__, operations()):
        with suppress(KeyError):
            async with db.transaction() as unit:
                try:
                    await run(unit, name)
                except RuntimeError as error:
                    refused[name] = str(error)
                raise KeyError
        assert tables.rows() == tables.before, name
        tables.restore()
    for name, text in refused.items():
        assert text.startswith(f"{name} cannot be part of"), text
        assert SAMPLES[name].in_steps or name in WAITING, name


Choose = Callable[[int], Iterable[int]]


def some(awaits: int) -> Iterable[int]:
    """Choose the first, the middle and the last, behind which a call comes to its end."""
    return sorted({1, awaits // 2 + 1, max(1, awaits)})


def each(awaits: int) -> Iterable[int]:
    """Count up to what the call comes to, which is not the same each time."""
    return itertools.count(1)


some_or_each = pytest.mark.parametrize("chosen", [some, pytest.param(each, marks=pytest.mark.full)])


@some_or_each
async def test_opening_cancelled_anywhere(
    location: str, make_location: Callable[..., str], chosen: Choose
) -> None:
    """An empty database gets its schema by the first use, or by the next."""
    driver = location.partition("://")[0] if "://" in location else "sqlite"
    tasks, threads = asyncio.all_tasks(), own_threads()
    async with SessionDB(make_location(driver, empty=True)) as db:
        steps = chosen(await awaits_of(functools.partial(db.get_meta, "k")))
    for step in steps:
        async with SessionDB(make_location(driver, empty=True)) as db:
            is_whole = await cancelled_at(step, functools.partial(db.get_meta, "k"))
            await db.set_meta("k", str(step))
            assert await db.get_meta("k") == str(step)
        assert (asyncio.all_tasks(), own_threads()) == (tasks, threads), step
        if is_whole:
            break
    logger.info("opening: cancelled at %d awaits at most", step)


@some_or_each
async def test_cancelled_anywhere(db: Any, raw: Any, tables: Tables, chosen: Choose) -> None:
    cancelled, threads = 0, own_threads()
    for name in filter(SAMPLES.__contains__, operations()):
        call = functools.partial(run, db, name)
        tasks = asyncio.all_tasks()
        awaits = await awaits_of(call)
        await works(db)
        after = tables.rows()
        changes = after != tables.before
        for step in chosen(awaits):
            where = f"{name}, cancelled at await {step}"
            if changes:
                tables.restore()
            try:
                async with asyncio.timeout(WITHIN):
                    is_whole = await cancelled_at(step, call)
                    await works(db)
            except Exception as error:
                error.add_note(where)
                raise
            assert asyncio.all_tasks() == tasks, where
            assert own_threads() == threads, where
            if (changes or is_whole) and not SAMPLES[name].in_steps:
                found = tables.rows()
                difference = set(found) ^ set(after)
                assert not difference or (found == tables.before and not is_whole), where
            if is_whole:
                break
            cancelled += 1
        tables.restore()
    assert cancelled > len(SAMPLES)
    logger.info("cancelled at %d awaits", cancelled)
    if raw.is_postgres:
        assert await raw.fetch(HELD) == []


def own_threads() -> set[threading.Thread]:
    """Return the threads other than those of the loop's executor, which stay."""
    return {thread for thread in threading.enumerate() if not thread.name.startswith("asyncio_")}
