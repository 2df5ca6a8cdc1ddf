"""Killing the process that rebuilds a search index leaves nothing that cannot be continued."""

import asyncio
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from hermes_orm import SessionDB
from hermes_orm.repositories.search import indexing
from tests.contract.finding import found_set
from tests.contract.index_states import Index
from tests.raw import Raw

MESSAGES = 120
WORKER = textwrap.dedent(
    """
    import asyncio, sys
    from hermes_orm import SessionDB
    from hermes_orm.repositories.search import indexing
    from hermes_orm.services import indexing as flows

    indexing.STEP_IDS = 3
    flows.LEAST_PAUSE_SECONDS = flows.PAUSE_PER_STEP = 0
    flows.DISCARDED_ROWS = 1

    async def main():
        async with SessionDB(sys.argv[1]) as db:
            await db.get_meta("any")
            print("ready", flush=True)
            if sys.argv[2] == "optimize":
                await db.optimize_fts_storage()
            else:
                while await db.fts_rebuild_step():
                    pass

    asyncio.run(main())
    """
)


async def killed(location: str, action: str, seconds: float) -> None:
    """Run an action in a process of its own, and kill that in the middle."""
    process = subprocess.Popen(  # noqa: ASYNC220
        [sys.executable, "-c", WORKER, location, action],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    assert process.stdout is not None
    await asyncio.to_thread(process.stdout.readline)
    await asyncio.sleep(seconds)
    process.send_signal(signal.SIGKILL)
    await asyncio.to_thread(process.wait)
    process.stdout.close()


@pytest.mark.parametrize("action", ["step", "optimize"])
async def test_killed_rebuilds_are_continued(
    db: SessionDB,
    index: Index,
    raw: Raw,
    location: str,
    action: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await db.create_session("s", "cli")
    texts = [f"needle {n} 温室{n % 7}" if n % 3 else f"hay {n}" for n in range(MESSAGES)]
    await db.append_messages_batch("s", [{"role": "user", "content": text} for text in texts])
    expected = [n for n, text in enumerate(texts, 1) if "needle" in text]
    await index.lose(range(1, MESSAGES + 1), high_water=MESSAGES, progress=0)
    if action == "optimize":
        await index.disown()
    for seconds in (0.01, 0.04):
        await killed(location, action, seconds)
        assert await found_set(db, "needle", limit=None) == expected
    await db.append_message("s", "user", "needle at last")
    monkeypatch.setattr(indexing, "STEP_IDS", 50)
    assert (await db.optimize_fts_storage(vacuum=False))["ok"]
    assert await found_set(db, "needle", limit=None) == [*expected, MESSAGES + 1]
    await index.check(MESSAGES + 1)
    assert await raw.fetch("SELECT key FROM state_meta WHERE key LIKE 'fts_rebuild%'") == []
