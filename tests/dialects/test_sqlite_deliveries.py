"""The ledger of replies as older programs have made it, and owners of a file's rows."""

import os
from collections.abc import Callable
from typing import Any

import pytest

from hermes_orm.services.processes import this_process
from tests.raw import Raw

OLDER = """
CREATE TABLE delivery_obligations (
    obligation_id TEXT PRIMARY KEY, session_key TEXT NOT NULL, platform TEXT NOT NULL,
    chat_id TEXT NOT NULL, thread_id TEXT, content TEXT NOT NULL, state TEXT NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0, created_at REAL NOT NULL, updated_at REAL NOT NULL,
    owner_pid INTEGER, owner_started_at INTEGER, last_error TEXT
)
"""
COLUMNS = "obligation_id, session_key, platform, chat_id, content, created_at, updated_at"


@pytest.fixture
def location(make_location: Callable[..., str]) -> str:
    return make_location("sqlite")


async def test_older_ledger_gets_what_it_lacks(
    db: Any, raw: Raw, open_store: Callable[..., Any], clock: Any
) -> None:
    await raw.execute(OLDER)
    this = this_process()
    rows: list[tuple[str, str, int | None, int | None]] = [
        ("own", "failed", this.id, this.started_at),
        ("unknown start", "pending", this.id, None),
        ("of an earlier process", "pending", this.id, (this.started_at or 0) + 1),
        ("nobody's", "pending", None, None),
    ]
    for name, state, process_id, started_at in rows:
        await raw.execute(
            f"INSERT INTO delivery_obligations ({COLUMNS}, state, owner_pid, owner_started_at)"
            f" VALUES (?, 'k', 'telegram', '1', 'hi', ?, ?, ?, ?, ?)",
            *(name, clock.time, clock.time, state, process_id, started_at),
        )
    reader = open_store(read_only=True)
    assert await reader.pending_retries() == []
    taken = await db.sweep_recoverable()
    assert {row["obligation_id"] for row in taken} == {"of an earlier process", "nobody's"}
    assert {row["profile"] for row in taken} == {"default"}
    assert len(await db.pending_retries()) == len(await reader.pending_retries()) == 1
    (row,) = await db.sweep_failed_for_runtime("telegram", clock.time + 30, profile="default")
    assert row["receipt"] == ("own", 1)
    assert [index[1] for index in await raw.fetch("PRAGMA index_list(delivery_obligations)")][
        :1
    ] == ["idx_delivery_obligations_state"]


async def test_reply_of_a_container_that_is_gone_is_recovered(db: Any, raw: Raw) -> None:
    reply = {"session_key": "k", "platform": "telegram", "chat_id": "1", "thread_id": None}
    await db.record_obligation(obligation_id="o", content="hi", **reply)
    await raw.execute(
        "UPDATE delivery_obligations SET owner_host = 'old', owner_installation_id = 'old',"
        " owner_started_at = owner_started_at + 1"
    )
    assert len(await db.sweep_recoverable()) == 1


async def test_new_file_has_no_ledger(db: Any, raw: Raw) -> None:
    await db.create_session("s", "cli")
    await db.pending_retries()
    tables = "SELECT count(*) FROM sqlite_master WHERE name = 'delivery_obligations'"
    assert await raw.fetch(tables) == [(0,)]


async def test_delegation_is_known_by_process_and_start(db: Any, raw: Raw) -> None:
    for name in ("own", "nobody's", "of an earlier process", "of another"):
        await db.record_delegation_dispatch(name, "s", {})
    change = "UPDATE async_delegations SET {} WHERE delegation_id = ?"
    await raw.execute(change.format("owner_pid = NULL"), "nobody's")
    await raw.execute(
        change.format("owner_started_at = owner_started_at + 1"), "of an earlier process"
    )
    await raw.execute(
        change.format("owner_started_at = NULL, owner_pid = ?"), os.getppid(), "of another"
    )
    assert await db.recover_abandoned_delegations() == 2
    states = await raw.fetch("SELECT delegation_id, state FROM async_delegations")
    assert dict(states) == {
        "own": "running",
        "of another": "running",
        "nobody's": "unknown",
        "of an earlier process": "unknown",
    }
    assert not await db.record_delegation_completion({"delegation_id": "of another"}, {})
    assert await db.record_delegation_completion({"delegation_id": "own"}, {})
