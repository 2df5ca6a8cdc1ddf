"""A disk that is full, or fails, during each operation: all of it is done or nothing.

The full forms tell their figures with `-m full --log-cli-level=INFO`. A full disk during an
adoption: tests/migrations/test_sqlite_adoption.py.
"""

import asyncio
import functools
import json
import logging
import os
import random
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from hermes_orm import SessionDB, classify_persistence_error
from hermes_orm.dialects.sqlite import driver, engine
from tests.contract.samples import SAMPLES, completed, seed
from tests.contract.tables import Tables

ROOT = Path(__file__).parents[2]
logger = logging.getLogger(__name__)

ALONE = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"])]
MOUNT = 'mount -t tmpfs -o size=16m tmpfs "$0" && exec "$@"'
ROOMS = {"file-size": [-150_000], "small-disk": [60_000]}
MANY_ROOMS = {
    "file-size": [*range(-400_000, 400_000, 100_000)],
    "small-disk": [*range(0, 800_000, 100_000)],
}


@pytest.mark.parametrize("limit", ["file-size", "small-disk"])
@pytest.mark.parametrize("rooms", [ROOMS, pytest.param(MANY_ROOMS, marks=pytest.mark.full)])
async def test_full_disk_during_any_operation(
    tmp_path: Path, limit: str, rooms: dict[str, list[int]]
) -> None:
    folder = tmp_path / "disk"
    folder.mkdir()
    module = [sys.executable, "-m", "tests.reliability.filling", str(folder), limit]
    command = [*module, *map(str, rooms[limit])]
    if limit == "small-disk":
        probe = subprocess.run(
            [*ALONE, "sh", "-c", MOUNT, str(folder), "true"], capture_output=True, text=True
        )
        if probe.returncode:
            pytest.skip(f"no file system can be mounted here: {probe.stderr}")
        command = [*ALONE, "sh", "-c", MOUNT, str(folder), *command]
    process = await asyncio.create_subprocess_exec(
        *command, cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    told, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    runs = [json.loads(line) for line in told.splitlines()]
    failed = [run for run in runs if run["error"]]
    unclear = [
        run
        for run in failed
        # A file that may not grow is an odd disk: a program is told so, SQLite tells an I/O error.
        if run["cause"] != "disk" and (run["operation"], limit) != ("export", "file-size")
    ]
    assert unclear == []
    spared = {run["operation"] for run in runs} - {run["operation"] for run in failed}
    assert spared <= ({"delete", "rebuild"} if limit == "file-size" else set())
    kept = sum(run["acknowledged"] for run in runs)
    logger.info("%d runs, %d failed, %d messages acknowledged", len(runs), len(failed), kept)


class Failing(driver.module().Connection):  # type: ignore[misc]
    """A connection whose disk fails once, at a statement or a commit; SQLite then rolls back."""

    left: int | None = None
    """Statements and commits until then; None: never."""
    count = 0

    def _pass(self, statement: str) -> None:
        if statement.startswith(("PRAGMA", "BEGIN", "ROLLBACK")):
            return
        Failing.count += 1
        if Failing.left is not None:
            Failing.left -= 1
            if Failing.left < 0:
                Failing.left = None
                if self.in_transaction:
                    super().rollback()
                raise driver.module().OperationalError("disk I/O error")

    def execute(self, statement: str, *arguments: Any) -> Any:
        self._pass(statement)
        return super().execute(statement, *arguments)

    def executemany(self, statement: str, *arguments: Any) -> Any:
        self._pass(statement)
        return super().executemany(statement, *arguments)

    def cursor(self, *arguments: Any) -> Any:
        self._pass("SQLAlchemy's next one")
        return super().cursor(*arguments)

    def commit(self) -> None:
        self._pass("COMMIT")
        super().commit()


@pytest.fixture
async def failing(
    make_location: Callable[..., str], monkeypatch: pytest.MonkeyPatch, clock: Any
) -> AsyncIterator[tuple[Any, Tables]]:
    """A store on connections that can fail, with all that operations need, and its tables."""
    location = make_location("sqlite")
    connect = functools.partial(driver.module().connect, factory=Failing)
    options = {"timeout": 1.0, "isolation_level": None, "check_same_thread": False}

    def connection(name: str, *, uri: bool = False) -> Any:
        return connect(name, cached_statements=256, uri=uri, **options)

    monkeypatch.setattr(engine, "_connection", connection)
    async with SessionDB(location) as db:
        await seed(db)
        tables = Tables(location)
        yield db, tables
        tables.close()


TELLING = {
    *("maybe_auto_prune_and_vacuum", "maybe_auto_archive"),
    *("try_acquire_compression_lock", "refresh_compression_lock", "release_compression_lock"),
}
"""Operations that tell in their result that they failed, or leave a lock to its expiry."""


@pytest.mark.parametrize("some", [40, pytest.param(None, marks=pytest.mark.full)])
async def test_io_error_during_any_operation(failing: tuple[Any, Tables], some: int | None) -> None:
    """At a point of `some` operations, or at each statement and commit of all."""
    db, tables = failing
    chance, injected, surprises = random.Random(8), 0, []
    names = chance.sample([*SAMPLES], some) if some else SAMPLES
    for name in names:
        sample = SAMPLES[name]
        call = functools.partial(getattr(db, name), *sample.args, **sample.kwargs)
        Failing.count = 0
        await completed(call())
        await db.flush_token_counts()
        number, after = Failing.count, tables.rows()
        where = chance.sample(range(number), min(1, number)) if some else range(number)
        for point in where:
            tables.restore()
            Failing.left = point
            error = None
            try:
                await completed(call())
                await db.flush_token_counts()
            except Exception as raised:  # noqa: BLE001  (judged below)
                error = raised
            finally:
                was_met, Failing.left = Failing.left is None, None
            injected += was_met
            found = tables.rows()
            is_whole = found == tables.before if error else not set(found) ^ set(after)
            if not (is_whole or sample.in_steps or (name in TELLING and error is None)):
                surprises.append((name, point, number, repr(error)))
            if error is not None and classify_persistence_error(error) != "disk":
                surprises.append((name, point, number, repr(error)))
        tables.restore()
    await db.create_session("afterwards", "cli")
    assert surprises == []
    assert injected > len(names) / 2
    logger.info("%d errors injected", injected)
