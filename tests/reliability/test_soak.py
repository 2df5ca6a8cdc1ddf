"""A host's mixed load for a long time: nothing grows that should not.

`pytest -m full tests/reliability/test_soak.py --log-cli-level=info` runs 20 minutes per database.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from hermes_orm import SessionDB
from tests.journal import use_journal
from tests.reliability.footprint import footprint
from tests.reliability.host import Worker

ROUNDS: Final = 4
WARM_UP: Final = 2
"""Rounds after which the caches hold nearly every statement."""
POOL_SIZE: Final = 4

logger = logging.getLogger(__name__)


@pytest.fixture(params=["wal", "delete", "postgresql+asyncpg", "postgresql+psycopg"])
def location(
    request: pytest.FixtureRequest, make_location: Callable[..., str], hermes_home: Path
) -> str:
    hermes_home.mkdir()
    settings = f"database: {{postgres: {{pool_size: {POOL_SIZE}}}}}"
    (hermes_home / "config.yaml").write_text(settings)
    if "+" in request.param:
        return make_location(request.param)
    path = make_location("sqlite")
    use_journal(path, request.param)
    return path


@pytest.mark.parametrize(
    ("tasks", "minutes"), [(2, 0), pytest.param(3, 20, marks=pytest.mark.full)]
)
async def test_nothing_grows(
    db: SessionDB, tasks: int, minutes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hermes_orm.tombstones.LIMIT", 100)
    workers = [Worker(db, f"w{number}") for number in range(tasks)]
    began, rounds, operations = time.monotonic(), 0, 0
    warm = last = None
    while rounds < ROUNDS or time.monotonic() < began + minutes * 60:
        operations += sum(await asyncio.gather(*(worker.round() for worker in workers)))
        rounds += 1
        if rounds % 5 == 0 or not minutes:
            last = await footprint(db, pool_size=POOL_SIZE)
            logger.info("%d operations in %d rounds: %s", operations, rounds, last)
            if warm is None and rounds >= WARM_UP and time.monotonic() > began + minutes * 15:
                warm = last
    assert warm and last
    assert last.tasks == warm.tasks
    assert last.threads <= warm.threads
    assert last.files <= warm.files + 1  # the second reader opens when it is needed
    assert last.connections <= warm.connections
    assert last.statements <= warm.statements + 10
    # Connections learn the same statements one after another; one each call would be 176 more.
    assert last.prepared <= warm.prepared + POOL_SIZE * 25
    assert last.wal_kb <= 8192
    assert last.memory_blocks < warm.memory_blocks * 1.02
    assert last.resident_kb < warm.resident_kb * 1.1
