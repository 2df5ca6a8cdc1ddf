"""Deleting and giving room back in a SQLite file."""

import logging
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.dialects import sqlite

from hermes_orm import SessionDB
from hermes_orm.dialects.sqlite import upkeep
from hermes_orm.repositories.retention.deletion import DELETE, KNOWN, LOCK
from tests.contract.stories import Story
from tests.journal import use_journal
from tests.raw import Raw


def test_deletions_read_no_whole_table(sqlite_template: Path) -> None:
    connection = sqlite3.connect(sqlite_template)
    for statement in (KNOWN, LOCK, *DELETE):
        compiled = statement.compiled(sqlite.dialect())
        marks = ["[]"] * len(compiled.names)
        plan = list(connection.execute(f"EXPLAIN QUERY PLAN {compiled.text}", marks))
        read = [step for *_, step in plan if step.startswith("SCAN") and "VIRTUAL" not in step]
        assert not read, compiled.text
    connection.close()


async def test_text_in_place_of_a_time_spares_its_session(
    make_location: Callable[..., str],
) -> None:  # B2
    location = make_location("sqlite")
    await Story(Raw(location)).new("bad", 1, ended_at=1.0)
    await Raw(location).execute("UPDATE sessions SET started_at = 'not-a-timestamp'")
    async with SessionDB(location) as db:
        (row,) = await db.list_prune_candidates()
        assert (row["id"], row["started_at"], row["last_active"]) == ("bad", None, None)
        assert await db.prune_sessions() == 0 == await db.prune_sessions(0)


async def test_dense_or_crowded_file_is_not_rewritten(
    make_location: Callable[..., str],
    clock: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # I10
    location = make_location("sqlite")
    story = Story(Raw(location))

    async def pruned(db: SessionDB) -> Any:
        await story.new("old", 1, ended_at=1.0)
        return await db.maybe_auto_prune_and_vacuum(min_interval_hours=0)

    unchanged = {"skipped": False, "pruned": 1, "vacuumed": False}
    caplog.set_level(logging.INFO, "hermes_orm.sqlite")
    async with SessionDB(location) as db:
        await db.vacuum()
        with monkeypatch.context() as patched:
            patched.setattr(upkeep, "SMALL_BYTES", 0)
            assert await pruned(db) == unchanged
            assert "no VACUUM: only" in caplog.text
        with monkeypatch.context() as patched:
            usage = shutil.disk_usage(location)
            patched.setattr(shutil, "disk_usage", lambda path: usage._replace(free=5))
            assert await pruned(db) == unchanged
            assert "bytes of disk, 5 are free" in caplog.text
        assert await db.get_meta("last_vacuum") is None
        assert (await pruned(db))["vacuumed"]


async def test_vacuum_leaves_a_small_wal(make_location: Callable[..., str]) -> None:  # I11
    location = make_location("sqlite")
    use_journal(location, "wal")
    async with SessionDB(location) as db:
        await db.create_session("s", "cli")
        rows = [{"role": "user", "content": f"lorem ipsum {number}"} for number in range(300)]
        for _ in range(10):
            await db.append_messages_batch("s", rows)
        await db.message_count()
        await db.vacuum()
        assert Path(f"{location}-wal").stat().st_size == 0
        assert await db.message_count("s") == 3_000
