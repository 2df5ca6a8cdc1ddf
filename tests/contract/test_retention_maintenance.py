"""Automatic maintenance, vacuum and sizes: usage-and-maintenance.md sections 3.6 to 3.8."""

import asyncio
import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest

from hermes_orm.services import deletion, upkeep
from tests.contract.stories import Story

DAY = 86_400


@pytest.fixture
async def one_old(story: Story, clock: Any) -> Callable[[], Any]:
    """A call that adds one session to prune."""
    numbers = itertools.count()

    async def add() -> None:
        long_ago = clock.time - 100 * DAY
        await story.new(f"old{next(numbers)}", long_ago, ended_at=long_ago)

    await add()
    return add


async def failing(*args: Any, **keys: Any) -> Any:
    raise OSError("x")


async def test_first_call_of_a_store_may_be_maintenance(db: Any) -> None:  # X1
    done = {"skipped": False, "pruned": 0, "vacuumed": False}
    assert await db.maybe_auto_prune_and_vacuum() == done


async def test_automatic_pruning_waits_for_its_interval(
    db: Any, clock: Any, one_old: Callable[[], Any]
) -> None:
    done = {"skipped": False, "pruned": 1, "vacuumed": True}
    assert await db.maybe_auto_prune_and_vacuum() == done
    now = repr(clock.time)
    assert [await db.get_meta(key) for key in ("last_auto_prune", "last_vacuum")] == [now, now]
    await one_old()
    skipped = {"skipped": True, "pruned": 0, "vacuumed": False}
    clock.advance(DAY - 1)
    assert await db.maybe_auto_prune_and_vacuum() == skipped
    clock.advance(1)
    again = {"skipped": False, "pruned": 1, "vacuumed": False}
    assert await db.maybe_auto_prune_and_vacuum() == again, "vacuumed a day ago"  # usage 9.28
    for mark in ("junk", "nan", str(clock.time + 2 * DAY), None):
        await db.set_meta("last_auto_prune", mark)
        assert not (await db.maybe_auto_prune_and_vacuum())["skipped"], mark
    await db.set_meta("last_auto_prune", clock.time + DAY / 2)
    assert (await db.maybe_auto_prune_and_vacuum())["skipped"]
    await one_old()
    prune_now = {"min_interval_hours": 0, "min_vacuum_interval_days": 0}
    assert await db.maybe_auto_prune_and_vacuum(vacuum=False, **prune_now) == again
    await one_old()
    assert await db.maybe_auto_prune_and_vacuum(**prune_now) == done


async def test_automatic_pruning_says_what_failed(
    db: Any, one_old: Any, monkeypatch: pytest.MonkeyPatch, open_store: Callable[..., Any]
) -> None:  # usage 9.28
    bad: tuple[Any, ...] = (None, -1, float("nan"), "90", True)
    for days in bad:
        result = await db.maybe_auto_prune_and_vacuum(retention_days=days)
        assert result.pop("error").startswith("retention_days must")
        assert result == {"skipped": False, "pruned": 0, "vacuumed": False}
    assert "min_interval_hours" in (await db.maybe_auto_prune_and_vacuum(90, -1))["error"]
    assert "read-only" in (await open_store(read_only=True).maybe_auto_prune_and_vacuum())["error"]
    assert "read-only" in (await open_store(read_only=True).maybe_auto_archive())["error"]
    assert await db.session_count() == 1
    with monkeypatch.context() as patched:
        patched.setattr(deletion, "prune_sessions", failing)
        failed = {"skipped": False, "pruned": 0, "vacuumed": False, "error": "x"}
        assert await db.maybe_auto_prune_and_vacuum() == failed
    assert await db.get_meta("last_auto_prune") is None
    monkeypatch.setattr(upkeep, "vacuum", failing)
    pruned = {"skipped": False, "pruned": 1, "vacuumed": False}
    assert await db.maybe_auto_prune_and_vacuum() == pruned
    assert await db.get_meta("last_vacuum") is None
    assert await db.get_meta("last_auto_prune") is not None


async def test_automatic_archiving_waits_for_its_interval(
    db: Any, story: Story, clock: Any
) -> None:  # usage 9.27
    await story.new("idle", clock.time - 10 * DAY)
    assert await db.maybe_auto_archive() == {"skipped": False, "archived": 1}
    assert await db.maybe_auto_archive() == {"skipped": True, "archived": 0}
    await db.set_meta("last_auto_archive", "junk")
    assert await db.maybe_auto_archive() == {"skipped": False, "archived": 0}
    assert await db.get_meta("last_auto_archive") == repr(clock.time)
    bad: Any = "3"
    result = await db.maybe_auto_archive(bad, min_interval_hours=0)
    assert result["error"] == "idle_days must be a number, not str"


async def test_vacuum_gives_room_back(db: Any, raw: Any) -> None:  # usage 3.8
    await db.create_session("s", "cli")
    empty = await db.logical_size_bytes()
    for _ in range(20):
        await db.append_message("s", "user", random.randbytes(100_000).hex())
    full = await db.logical_size_bytes()
    assert full > empty
    await db.clear_messages("s")
    assert await db.vacuum() >= 1
    assert await db.logical_size_bytes() < full
    assert await db.append_message("s", "user", "needle")
    assert len(await db.search_messages("needle")) == 1
    if raw.is_postgres:
        assert await db.vacuum() == 1
        rows = await raw.fetch(
            "SELECT last_analyze IS NOT NULL FROM pg_stat_user_tables WHERE relname = 'sessions'"
        )
        assert rows == [(True,)]


async def test_vacuum_waits_for_running_writes(db: Any) -> None:
    await db.create_session("s", "cli")
    writes = [db.append_message("s", "user", f"m{number}") for number in range(20)]
    await asyncio.gather(*writes[:10], db.vacuum(), *writes[10:])
    assert (await db.get_session("s"))["message_count"] == 20 == await db.message_count("s")


async def test_unknown_size_is_none(db: Any) -> None:
    await db.get_meta("any")
    await db.close()
    assert await db.logical_size_bytes() is None


async def test_maintenance_is_no_part_of_a_transaction(db: Any, tmp_path: Any) -> None:
    async with db.transaction() as unit:
        await unit.create_session("s", "cli")
        for call in (unit.vacuum, unit.maybe_auto_archive, unit.maybe_auto_prune_and_vacuum):
            with pytest.raises(RuntimeError, match=r"cannot be part of a transaction\(\)"):
                await call()
        with pytest.raises(RuntimeError, match="sessions_dir"):
            await unit.delete_session("s", tmp_path)
        assert await unit.delete_session("s")
    assert await db.session_count() == 0
