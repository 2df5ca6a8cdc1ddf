"""Processes open a store at the same moment, one that is new or one that exists.

`pytest -m full tests/reliability/test_openers.py` opens 1,000 on each database.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import DRIVERS
from tests.raw import Raw
from tests.reliability.stores import assert_sound
from tests.reliability.workers import Workers, open_together

OPENERS = 4
ROUNDS = 5
"""A new database, then the same again and again."""


@pytest.mark.parametrize("opens", [60, pytest.param(1000, marks=pytest.mark.full)])
@pytest.mark.parametrize("driver", DRIVERS)
async def test_openers_find_one_schema(
    make_location: Callable[..., str], driver: str, opens: int
) -> None:
    location = make_location(driver, empty=True)
    raw = Raw(location)
    with Workers(open_together, [()] * OPENERS) as openers:
        for database in range(opens // (OPENERS * ROUNDS)):
            if database:
                await empty(raw, location)
            for number in range(ROUNDS):
                for opener, line in enumerate(openers.lines):
                    line.send((location, f"s{number}{opener}"))
                counts = await asyncio.to_thread(openers.answers)
                assert max(counts) == OPENERS * (number + 1)
            for table in ("schema_version", "hermes_alembic_version"):
                assert len(await raw.fetch(f"SELECT * FROM {table}")) == 1
    await assert_sound(location)


async def empty(raw: Raw, location: str) -> None:
    """Have a database that is as good as new."""
    if raw.is_postgres:
        await raw.execute("DROP SCHEMA public CASCADE")
        await raw.execute("CREATE SCHEMA public")
    else:
        for file in Path(location).parent.glob(f"{Path(location).name}*"):
            file.unlink()
