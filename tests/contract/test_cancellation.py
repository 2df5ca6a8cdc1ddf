"""Every operation, cancelled at each of its awaits or undone with its transaction.

All or nothing, and nothing is left behind.
"""

import asyncio
import functools
import inspect
import itertools
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from hermes_orm import SessionDB
from tests.contract.samples import SAMPLES, seed
from tests.contract.steps import cancelled_at
from tests.contract.tables import Tables

ONE_CONNECTION = """
database:
  postgres: {pool_size: 1, max_overflow: 0, pool_timeout: 5}
"""
"""A connection that is not given back is missed at once."""
WITHIN = 20.0
WAITING = {"acquire_session_turn_lease", "flush_token_counts"}


def operations() -> list[str]:
    return [
        name
        for name, method in inspect.getmembers_static(SessionDB)
        if inspect.iscoroutinefunction(method) and not name.startswith("__") and name != "close"
    ]


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
        sample = SAMPLES[name]
        with suppress(KeyError):
            async with db.transaction() as unit:
                try:
                    await getattr(unit, name)(*sample.args, **sample.kwargs)
                except RuntimeError as error:
                    refused[name] = str(error)
                raise KeyError
        assert tables.rows() == tables.before, name
        tables.restore()
    for name, text in refused.items():
        assert text.startswith(f"{name} cannot be part of"), text
        assert SAMPLES[name].in_steps or name in WAITING, name


async def test_cancelled_anywhere(db: Any, tables: Tables) -> None:
    awaits = 0
    for name in filter(SAMPLES.__contains__, operations()):
        sample = SAMPLES[name]
        call = functools.partial(getattr(db, name), *sample.args, **sample.kwargs)
        tasks = asyncio.all_tasks()
        await call()
        await works(db)
        after = tables.rows()
        changes = after != tables.before
        for step in itertools.count(1):
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
            if (changes or is_whole) and not sample.in_steps:
                found = tables.rows()
                difference = set(found) ^ set(after)
                assert not difference or (found == tables.before and not is_whole), where
            if is_whole:
                break
        awaits += step - 1
        tables.restore()
    assert awaits > len(SAMPLES)
