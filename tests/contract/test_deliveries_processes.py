"""Several processes take over what one that was killed has left."""

from typing import Any

from tests.contract.test_processes import at_once, start
from tests.owing import REPLIES, RESULTS


async def test_sweepers_share_what_a_killed_process_owes(location: str, db: Any, raw: Any) -> None:
    process = await start("owing", location, "owe")
    assert process.stdout is not None
    assert await process.stdout.readline() == b"ready\n"
    assert await db.sweep_recoverable() == []
    assert await db.recover_abandoned_delegations() == 0
    process.kill()
    await process.wait()
    if raw.is_postgres:  # another host could not know
        await raw.execute("UPDATE async_delegations SET lease_expires_at = 1")
    answers = await at_once("owing", [(location, "sweep")] * 3)
    taken = [name for names, _ in answers for name in names]
    assert sorted(taken) == sorted(f"o{number}" for number in range(REPLIES))
    assert sum(recovered for _, recovered in answers) == RESULTS
    states = await raw.fetch("SELECT DISTINCT state FROM delivery_obligations")
    assert states == [("attempting",)]
    assert await raw.fetch("SELECT DISTINCT state FROM async_delegations") == [("unknown",)]
