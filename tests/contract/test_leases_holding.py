"""Compression locks and turn leases: messages.md sections 10, 11 and 19."""

import asyncio
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from hermes_orm import ReadOnlyStoreError
from hermes_orm.errors import SessionTurnLeaseLostError


class Kind:
    """One kind of lease, with the names of its operations."""

    def __init__(self, name: str, table: str) -> None:
        self.name = name
        self.table = table

    def of(self, db: Any, raw: Any) -> "Bound":
        return Bound(self, db, raw)


class Bound:
    """The operations of a kind on the session `s`."""

    def __init__(self, kind: Kind, db: Any, raw: Any) -> None:
        self.acquire = getattr(db, f"try_acquire_{kind.name}")
        self.refresh = getattr(db, f"refresh_{kind.name}")
        self.release = getattr(db, f"release_{kind.name}")
        self._table = kind.table
        self._raw = raw

    async def row(self) -> tuple[str, float, float] | None:
        rows = await self._raw.fetch(f"SELECT holder, acquired_at, expires_at FROM {self._table}")
        return rows[0] if rows else None

    async def left(self) -> float:
        row = await self.row()
        assert row is not None
        return row[2] - time.time()

    async def expire(self) -> None:
        await self._raw.execute(f"UPDATE {self._table} SET expires_at = ?", time.time() - 1)


KINDS = [
    Kind("compression_lock", "compression_locks"),
    Kind("session_turn_lease", "session_turn_leases"),
]


@pytest.fixture(params=KINDS, ids=[kind.name for kind in KINDS])
def lease(request: pytest.FixtureRequest, db: Any, raw: Any) -> Bound:
    """The operations of each kind of lease; their sessions need not exist."""
    bound: Bound = request.param.of(db, raw)
    return bound


async def test_one_holder_at_a_time(lease: Bound) -> None:
    assert await lease.acquire("s", "A", ttl_seconds=10) is True
    assert await lease.acquire("s", "B") is False
    assert await lease.acquire("s", "A", ttl_seconds=100) is True
    assert await lease.left() == pytest.approx(100, abs=4)
    assert await lease.acquire("s", "A", ttl_seconds=10) is True
    assert await lease.left() == pytest.approx(100, abs=4), "never brought forward"
    assert await lease.refresh("s", "B") is False
    await lease.release("s", "B")
    assert await lease.refresh("s", "A", ttl_seconds=20) is True
    assert await lease.left() == pytest.approx(20, abs=4)
    await lease.release("s", "A")
    await lease.release("s", "A")
    assert await lease.row() is None
    assert await lease.refresh("s", "A") is False


async def test_expired_lease_is_its_holders_until_somebody_takes_it(lease: Bound) -> None:
    await lease.acquire("s", "A")
    await lease.expire()
    assert await lease.refresh("s", "A") is True
    assert await lease.acquire("s", "B") is False
    await lease.expire()
    assert await lease.acquire("s", "B", ttl_seconds=50) is True
    assert await lease.left() == pytest.approx(50, abs=4)
    assert await lease.refresh("s", "A") is False
    assert await lease.acquire("s", "A") is False


async def test_time_of_acquisition_is_kept_while_it_is_held(lease: Bound) -> None:
    await lease.acquire("s", "A")
    first = await lease.row()
    await asyncio.sleep(0.02)
    await lease.acquire("s", "A")
    second = await lease.row()
    assert first and second and first[1] == second[1] == pytest.approx(time.time(), abs=4)
    await lease.expire()
    await lease.acquire("s", "A")
    third = await lease.row()
    assert third and third[1] > first[1]


@pytest.mark.parametrize(("session_id", "holder"), [("", "A"), (None, "A"), ("s", ""), ("s", None)])
async def test_nobody_and_nothing_have_no_lease(lease: Bound, session_id: Any, holder: Any) -> None:
    assert await lease.acquire(session_id, holder) is False
    assert await lease.refresh(session_id, holder) is False
    assert await lease.release(session_id, holder) is None
    assert await lease.row() is None


async def test_ids_and_holders_are_any_text(lease: Bound) -> None:
    session_id, holder = "é" * 512, "H\x00\ud800" + "é" * 5000
    assert await lease.acquire(session_id, holder) is True
    assert await lease.acquire(session_id, holder) is True
    assert await lease.refresh("s\x00", "A") is False
    assert await lease.release("s\ud800", "A") is None
    with pytest.raises(ValueError, match="session id"):
        await lease.acquire("s\x00", "A")


async def test_one_of_eight_wins(lease: Bound, open_store: Callable[..., Any]) -> None:
    kind = lease.acquire.__name__
    stores = [open_store() for _ in range(8)]
    for number in range(3):
        tries = [
            getattr(store, kind)(f"s{number}", f"H{name}") for name, store in enumerate(stores)
        ]
        assert sorted(await asyncio.gather(*tries)) == [False] * 7 + [True]


async def test_one_of_eight_takes_over(lease: Bound, open_store: Callable[..., Any]) -> None:
    await lease.acquire("s", "A")
    await lease.expire()
    kind = lease.acquire.__name__
    tries = [getattr(open_store(), kind)("s", f"H{name}") for name in range(8)]
    assert sorted(await asyncio.gather(*tries)) == [False] * 7 + [True]


# Processes that are gone: a rule of SQLite, where everybody is on one host


@pytest.fixture(scope="module")
def dead() -> int:
    """The id of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


@pytest.mark.parametrize("holder", ["pid={dead}:x", "pid={dead}", "task=1:pid={dead}:nonce=2"])
async def test_lease_of_a_dead_process_is_free_on_one_host(
    lease: Bound, raw: Any, dead: int, holder: str
) -> None:
    await lease.acquire("s", holder.format(dead=dead), ttl_seconds=300)
    assert await lease.acquire("s", "B", ttl_seconds=50) is not raw.is_postgres
    if not raw.is_postgres:
        assert await lease.left() == pytest.approx(50, abs=4)


async def test_lease_of_a_process_that_may_live_is_held(lease: Bound, dead: int) -> None:
    doubtful = [f"xpid={dead}", f"pid={dead}x", f"pid={dead} :", f"PID={dead}", "pid=:", "pid=0"]
    living = [f"pid={os.getpid()}:x", f"x:pid={os.getppid()}", "pid=1", f"pid={'9' * 30}"]
    for number, holder in enumerate([*doubtful, *living, "pid=9999999999999999"]):
        assert await lease.acquire(f"s{number}", holder) is True
        assert await lease.acquire(f"s{number}", "B") is False, holder


# Compression locks


async def test_holder_of_a_lock(db: Any, raw: Any) -> None:
    assert await db.get_compression_lock_holder("s") is None
    await db.try_acquire_compression_lock("s", "A")
    assert await db.get_compression_lock_holder("s") == "A"
    await raw.execute("UPDATE compression_locks SET expires_at = ?", time.time() - 1)
    assert await db.get_compression_lock_holder("s") is None
    assert await db.try_acquire_compression_lock("t", "A", 0) is True
    await asyncio.sleep(0.01)
    assert await db.get_compression_lock_holder("t") is None
    assert await db.try_acquire_compression_lock("t", "B", -5) is True


async def test_lock_of_a_read_only_store_is_not_to_be_had(
    db: Any, open_store: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    await db.try_acquire_compression_lock("s", "A")
    reader = open_store(read_only=True)
    with caplog.at_level(logging.WARNING):
        assert await reader.try_acquire_compression_lock("t", "A") is False
        assert await reader.refresh_compression_lock("s", "A") is False
        assert await reader.release_compression_lock("s", "A") is None
    logged = [r for r in caplog.records if "the compression lock of" in r.getMessage()]
    assert [record.levelname for record in logged] == ["WARNING"] * 3
    assert await reader.get_compression_lock_holder("s") == "A"
    with pytest.raises(ReadOnlyStoreError, match=r"^try_acquire_session_turn_lease"):
        await reader.try_acquire_session_turn_lease("s", "A")


async def test_lock_of_a_broken_database_is_not_to_be_had(db: Any, raw: Any) -> None:
    await db.get_session("s")
    await raw.execute("DROP TABLE compression_locks")
    assert await db.try_acquire_compression_lock("s", "A") is False
    assert await db.refresh_compression_lock("s", "A") is False
    assert await db.release_compression_lock("s", "A") is None
    await db.close()
    with pytest.raises(RuntimeError):
        await db.try_acquire_compression_lock("s", "A")


async def test_lock_blocks_no_append(db: Any, session: str) -> None:
    await db.try_acquire_compression_lock(session, "A")
    await db.append_message(session, "user", "x")
    await db.append_message(session, "user", "x", compression_lock_holder="B")
    assert await db.message_count(session) == 2


# Turn leases: one per conversation


async def test_segments_share_a_turn(db: Any) -> None:
    await db.create_session("p", "cli")
    await db.end_session("p", "compression")
    await db.create_session("c", "cli", parent_session_id="p")
    await db.create_session("b", "cli", parent_session_id="p", model_config={"_branched_from": "p"})
    assert await db.try_acquire_session_turn_lease("c", "A") is True
    assert await db.try_acquire_session_turn_lease("p", "B") is False
    assert await db.try_acquire_session_turn_lease("b", "B") is True
    assert await db.refresh_session_turn_lease("p", "A") is True
    await db.release_session_turn_lease("p", "A")
    assert await db.try_acquire_session_turn_lease("c", "B") is True
    keys = {name: await db._session_turn_lease_key(name) for name in ("p", "c", "b", "x", "")}
    assert keys == {"p": "p", "c": "p", "b": "b", "x": "x", "": ""}


async def test_turn_of_a_compressed_subagent_goes_on(db: Any, session: str) -> None:
    marker = {"_delegate_from": session}
    await db.create_session("d", "cli", parent_session_id=session, model_config=marker)
    await db.try_acquire_session_turn_lease("d", "A")
    await db.end_session("d", "compression")
    await db.create_session("e", "cli", parent_session_id="d", model_config=marker)
    await db.append_message("e", "user", "x", turn_lease_holder="A")
    await db.release_session_turn_lease("e", "A")
    with pytest.raises(SessionTurnLeaseLostError):
        await db.append_message("e", "user", "x", turn_lease_holder="A")


async def test_turn_lasts_a_moment_at_least(db: Any, raw: Any) -> None:
    for operation in (db.try_acquire_session_turn_lease, db.refresh_session_turn_lease):
        before = time.time()
        assert await operation("s", "A", ttl_seconds=-5) is True
        [(expires_at,)] = await raw.fetch("SELECT expires_at FROM session_turn_leases")
        assert 0.09 < expires_at - before < 5


async def test_failures_of_turn_leases_are_the_callers(db: Any, raw: Any) -> None:
    await db.get_session("s")
    await raw.execute("DROP TABLE session_turn_leases")
    for operation in (
        db.try_acquire_session_turn_lease,
        db.acquire_session_turn_lease,
        db.refresh_session_turn_lease,
        db.release_session_turn_lease,
    ):
        with pytest.raises(Exception, match="session_turn_leases"):
            await operation("s", "A")
