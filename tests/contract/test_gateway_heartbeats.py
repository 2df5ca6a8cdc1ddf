"""Signs of life, streaks of failures, runs of jobs: gateway 8 and 9."""

from typing import Any

import pytest

from tests.conftest import Clock
from tests.contract.stories import Story, ids
from tests.contract.test_processes import at_once


async def test_heartbeats(db: Any, clock: Clock) -> None:
    assert await db.list_backend_heartbeats() == []
    assert await db.register_backend_heartbeat(backend_id="", pid=1, started_at=1) is None
    beat = {"pid": 7, "started_at": 10, "last_heartbeat": 20}
    await db.register_backend_heartbeat(backend_id="b", **beat)
    await db.register_backend_heartbeat(backend_id="a", **beat, profile="work", host="h")
    await db.register_backend_heartbeat(backend_id="c", **{**beat, "last_heartbeat": 30.5})
    rows = await db.list_backend_heartbeats()
    assert [row["backend_id"] for row in rows] == ["c", "a", "b"]
    assert rows[1] == {
        "backend_id": "a",
        "pid": 7,
        "started_at": 10.0,
        "last_heartbeat": 20.0,
        "profile": "work",
        "host": "h",
    }
    await db.register_backend_heartbeat(backend_id="a", pid=8, started_at=11, last_heartbeat=40)
    first = (await db.list_backend_heartbeats())[0]
    assert (first["backend_id"], first["pid"], first["profile"], first["host"]) == ("a", 8, "", "")
    for name in ("started_at", "last_heartbeat"):
        with pytest.raises(ValueError, match=f"^{name} must be a finite number"):
            await db.register_backend_heartbeat(backend_id="d", **{**beat, name: float("nan")})
    assert await db.clear_backend_heartbeat("a") is True
    assert await db.clear_backend_heartbeat("a") is False
    assert await db.clear_backend_heartbeat("") is False


async def test_stale_heartbeats_go(db: Any) -> None:
    await db.register_backend_heartbeat(backend_id="now", pid=1, started_at=1)
    (now,) = (row["last_heartbeat"] for row in await db.list_backend_heartbeats())
    ages = {"z old": 200, "a old": 101, "fresh": 50, "ahead": -50, "jumped": -200}
    for backend_id, age in ages.items():
        await db.register_backend_heartbeat(
            backend_id=backend_id, pid=1, started_at=1, last_heartbeat=now - age
        )
    for none in (0, -1, float("nan")):
        assert await db.prune_stale_heartbeats(max_age_seconds=none) == []
    gone = await db.prune_stale_heartbeats(max_age_seconds=100)
    assert gone == ["a old", "jumped", "z old"]  # G-19
    assert await db.prune_stale_heartbeats(max_age_seconds=100) == []
    assert len(await db.list_backend_heartbeats()) == 3


async def test_streaks_of_failures(location: str, db: Any, raw: Any) -> None:  # gateway 11.25
    assert await db.increment_hygiene_failure_streak("") == 1
    assert await db.increment_hygiene_failure_streak(None) == 1
    assert await raw.fetch("SELECT count(*) FROM gateway_hygiene_state") == [(0,)]
    answers = await at_once("claiming", [(location, "hygiene")] * 2)
    assert sorted(answers[0] + answers[1]) == list(range(1, 41))
    assert await db.increment_hygiene_failure_streak("k") == 41
    assert await db.increment_hygiene_failure_streak("other") == 1
    assert await db.reset_hygiene_failure_streak("k") is None
    assert await db.increment_hygiene_failure_streak("k") == 1


async def test_runs_of_a_job(db: Any, story: Story) -> None:  # gateway 11.31
    await story.new("cron_j_1", 1, source="cron")
    await story.new("cron_j_2", 2, source="cron", archived=1)
    await story.new("cron_j2_1", 3, source="cron")
    await story.new("cron_j_3", 4, source="cli")
    await story.new("cron_J_4", 5, source="cron")
    await story.new("cron_j%_5", 5, source="cron")
    await story.msg("cron_j_1", "what was asked", 9)
    rows = await db.list_cron_job_runs("j")
    assert ids(rows) == ["cron_j_2", "cron_j_1"]
    assert rows[1] == await db.get_session_rich_row("cron_j_1")
    assert ids(await db.list_cron_job_runs("j", limit=1, offset=1)) == ["cron_j_1"]
    assert ids(await db.list_cron_job_runs("j", limit=-1)) == ["cron_j_2", "cron_j_1"]
    assert await db.list_cron_job_runs("j", limit=0) == []
    assert ids(await db.list_cron_job_runs("j%")) == ["cron_j%_5"]
    assert await db.list_cron_job_runs("\0") == []
