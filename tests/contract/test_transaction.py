"""`db.transaction()`: several operations commit together (engine.md 3.7 and worked example 42)."""

import asyncio
import itertools
import logging
import math
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from hermes_orm import ReadOnlyStoreError
from hermes_orm.dialects import transport
from tests.contract.steps import cancelled_at
from tests.contract.turns import assistant, contents, user

APART = (
    "flush_token_counts",
    "fts_cjk_rebuild_step",
    "fts_rebuild_step",
    "maybe_auto_archive",
    "maybe_auto_prune_and_vacuum",
    "optimize_fts",
    "optimize_fts_storage",
    "rebuild_fts",
    "vacuum",
)
"""Operations that wait for others or commit in steps."""
IN_ONE_TASK = "would wait for itself"


async def test_operations_commit_together(db: Any, open_store: Callable[..., Any]) -> None:
    other = open_store()
    async with db.transaction() as unit:
        await unit.create_session("a", "cli", system_prompt="be brief")
        await unit.create_session("b", "cli", parent_session_id="a")
        await unit.append_message("b", "user", "needle one")
        await unit.append_messages_batch("b", [assistant("two"), user("three")])
        assert await unit.set_session_title("b", "The title")
        await unit.set_meta("k", "v")
        assert await unit.try_acquire_session_turn_lease("b", "holder")
        await unit.append_message("b", "user", "leased", turn_lease_holder="holder")
        await unit.end_session("a", "reset")
        # The unit sees its changes; the store, and another one, what is committed.
        assert contents(await unit.get_messages("b")) == ["needle one", "two", "three", "leased"]
        assert len(await unit.search_messages("needle")) == 1
        assert [row["id"] for row in await unit.list_sessions_rich(include_children=True)]
        for store in (db, other):
            assert await store.get_session("a") is None
            assert await store.get_messages("b") == []
            assert await store.search_messages("needle") == []
            assert await store.list_sessions_rich() == []
    for store in (db, other):
        assert contents(await store.get_messages("b")) == ["needle one", "two", "three", "leased"]
        assert (await store.get_session_by_title("The title"))["id"] == "b"
        assert (await store.get_session("a"))["end_reason"] == "reset"
        assert await store.get_meta("k") == "v"
        assert len(await store.search_messages("needle")) == 1


async def test_an_error_in_the_block_undoes_everything(db: Any, session: str) -> None:
    with pytest.raises(KeyError):  # noqa: PT012
        async with db.transaction() as unit:
            await unit.append_message(session, "user", "text")
            await unit.set_session_title(session, "title")
            raise KeyError
    assert await db.message_count(session) == 0
    assert await db.get_session_title(session) is None
    assert await db.append_message(session, "user", "next") > 0


async def test_deletions_of_a_block_are_forgotten_with_it(
    db: Any, session: str, tmp_path: Path
) -> None:
    file = tmp_path / f"{session}.json"
    file.touch()
    with pytest.raises(RuntimeError, match="sessions_dir"):
        async with db.transaction() as unit:
            await unit.delete_session(session, sessions_dir=tmp_path)
    assert file.exists()
    for commits in (False, True):
        with suppress(KeyError):
            async with db.transaction() as unit:
                assert await unit.delete_session(session)
                await unit.update_token_counts(session, input_tokens=10)  # late usage is dropped
                assert await unit.get_session(session) is None
                if not commits:
                    raise KeyError
        await db.update_token_counts(session, input_tokens=1)
        row = await db.get_session(session)
        assert (row and row["input_tokens"]) == (None if commits else 1)
    for commits in (False, True):
        with suppress(KeyError):
            async with db.transaction() as unit:
                await unit.create_session(session, "cli")
                await unit.update_token_counts(session, input_tokens=10)
                if not commits:
                    raise KeyError
        await db.update_token_counts(session, input_tokens=1)
        row = await db.get_session(session)
        assert (row and row["input_tokens"]) == (11 if commits else None)


async def test_a_failed_operation_spoils_the_unit(db: Any, session: str) -> None:
    await db.create_session("other", "cli")
    await db.set_session_title("other", "taken")
    with pytest.raises(RuntimeError, match="nothing of it is stored") as refusal:  # noqa: PT012
        async with db.transaction() as unit:
            await unit.append_message(session, "user", "text")
            with pytest.raises(ValueError, match="taken"):
                await unit.set_session_title(session, "taken")
            with pytest.raises(RuntimeError, match="nothing of it is stored"):
                await unit.set_meta("k", "v")
    assert isinstance(refusal.value.__cause__, ValueError)
    with pytest.raises(ValueError, match="taken"):  # noqa: PT012
        async with db.transaction() as unit:
            await unit.append_message(session, "user", "text")
            await unit.set_session_title(session, "taken")
    assert await db.message_count(session) == 0
    # An argument that is refused before the unit is reached does no harm.
    async with db.transaction() as unit:
        with pytest.raises(ValueError, match="chunk_rows"):
            await unit.append_messages_batch(session, [user("a")], chunk_rows=0)
        await unit.append_message(session, "user", "text")
    assert await db.message_count(session) == 1


async def test_what_waits_or_would_wait_for_itself_is_refused(db: Any, session: str) -> None:
    async with db.transaction() as unit:
        await unit.append_message(session, "user", "kept")
        await unit.queue_token_counts(session, input_tokens=1)
        for call, text in [
            *((getattr(unit, name)(), f"^{name} cannot") for name in APART),
            (unit.acquire_session_turn_lease(session, "h"), "^acquire_session_turn_lease cannot"),
            (
                unit.append_messages_batch(session, [user("a")], chunk_rows=1),
                "^append_messages_batch with chunk_rows cannot",
            ),
            (unit.close(), "^close cannot"),
            (unit.transaction().__aenter__(), "inside of a transaction"),
            (db.append_message(session, "user", "x"), IN_ONE_TASK),
            (db.create_session("x", "cli"), IN_ONE_TASK),
            (db.transaction().__aenter__(), IN_ONE_TASK),
            (db.close(), IN_ONE_TASK),
        ]:
            began = time.monotonic()
            with pytest.raises(RuntimeError, match=text):
                await call
            assert time.monotonic() - began < 0.5
        await unit.append_message(session, "user", "kept, too")
    assert (await db.get_session(session))["input_tokens"] == 1
    for call in (unit.get_session(session), unit.append_message(session, "user", "late")):
        with pytest.raises(RuntimeError, match="has ended"):
            await call
    assert contents(await db.get_messages(session)) == ["kept", "kept, too"]


async def test_queued_usage_goes_before_the_block(db: Any, session: str) -> None:
    await db.queue_token_counts(session, input_tokens=1)
    async with db.transaction() as unit:
        assert (await db.get_session(session))["input_tokens"] == 1
        await unit.update_token_counts(session, input_tokens=100)
        await db.queue_token_counts(session, input_tokens=10)  # waits for the block
        began = time.monotonic()
        assert (await unit.get_session(session))["input_tokens"] == 101
        await db.get_recent_session_model_route(session)
        assert time.monotonic() - began < 3
    await db.flush_token_counts()
    assert (await db.get_session(session))["input_tokens"] == 111


async def test_child_tasks_share_the_unit(db: Any, session: str) -> None:
    async with db.transaction() as unit:
        calls = (unit.append_message(session, "user", str(number)) for number in range(8))
        ids = await asyncio.gather(*calls)
        assert ids == sorted(ids)
    assert contents(await db.get_messages(session)) == [str(number) for number in range(8)]

    async def nested() -> None:
        async with unit.transaction():
            raise AssertionError

    async with db.transaction() as unit:
        await unit.append_message(session, "user", "8")
        with pytest.raises(RuntimeError, match="inside of a transaction"):
            await asyncio.create_task(nested())
    assert await db.message_count(session) == 9


async def test_other_tasks_write_meanwhile_or_wait(db: Any, raw: Any, session: str) -> None:
    await db.create_session("other", "cli")
    is_held, goes_on = asyncio.Event(), asyncio.Event()

    async def block() -> None:
        async with db.transaction() as unit:
            await unit.append_message(session, "user", "first")
            is_held.set()
            await goes_on.wait()
            await unit.append_message(session, "user", "second")

    holder = asyncio.create_task(block())
    await is_held.wait()
    same = asyncio.create_task(db.append_message(session, "user", "third"))
    another = asyncio.create_task(db.append_message("other", "user", "text"))
    await asyncio.wait([same, another], timeout=0.3)
    assert not same.done()
    assert another.done() == raw.is_postgres  # a SQLite file has one writer
    assert await db.message_count(session) == 0
    # A short patience ends while the block is open; a cancelled wait changes nothing.
    began = time.monotonic()
    with pytest.raises(Exception, match="database is locked"):
        await db.touch_session_activity(session, 2e9)
    assert 0.4 < time.monotonic() - began < 5
    waiting = asyncio.create_task(db.append_message(session, "user", "never"))
    await asyncio.sleep(0.02)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    goes_on.set()
    await asyncio.gather(holder, same, another)
    assert contents(await db.get_messages(session)) == ["first", "second", "third"]


async def test_transactions_follow_each_other(db: Any, session: str) -> None:
    async def block(number: int) -> None:
        async with db.transaction() as unit:
            await unit.append_message(session, "user", f"{number}a")
            await asyncio.sleep(0.01)
            await unit.append_message(session, "user", f"{number}b")

    await asyncio.gather(*(block(number) for number in range(5)))
    found = contents(await db.get_messages(session))
    assert sorted(found) == [f"{number}{part}" for number in range(5) for part in "ab"]
    assert all(found[i][0] == found[i + 1][0] for i in range(0, 10, 2))


async def test_patience_is_a_time(db: Any) -> None:
    for odd in (math.nan, "soon"):
        with pytest.raises(ValueError, match="patience must be a number"):
            await db.transaction(patience=odd).__aenter__()
    async with db.transaction(patience=-math.inf) as unit:
        await unit.set_meta("k", "v")
    assert await db.get_meta("k") == "v"


async def test_patience_is_for_the_begin(db: Any, open_store: Callable[..., Any], raw: Any) -> None:
    other = open_store()
    await other.get_meta("open")
    async with db.transaction() as unit:
        await unit.set_meta("a", "1")
        began = time.monotonic()
        if raw.is_postgres:  # there, the begin waits for nobody
            async with other.transaction(patience=0.1) as second:
                await second.set_meta("b", "2")
        else:
            with pytest.raises(Exception, match="database is locked"):
                await other.transaction(patience=0.1).__aenter__()
        assert time.monotonic() - began < 3
    async with other.transaction(patience=0.1) as second:
        await second.set_meta("c", "3")
    assert [await db.get_meta(key) for key in "ac"] == ["1", "3"]


async def test_cancelled_at_each_await_nothing_is_between(db: Any, session: str) -> None:
    async def block() -> None:
        async with db.transaction() as unit:
            await unit.append_message(session, "user", "a")
            await unit.append_messages_batch(session, [assistant("b"), user("c")])
            await asyncio.sleep(0)
            await unit.set_session_title(session, None)

    tasks = len(asyncio.all_tasks())
    for step in itertools.count(1):
        before = await db.message_count(session)
        is_whole = await cancelled_at(step, block)
        added = await db.message_count(session) - before
        assert added in (0, 3), step
        assert await db.append_message(session, "user", "next") > 0
        if is_whole:
            assert added == 3
            break
    assert step > 5
    assert len(asyncio.all_tasks()) == tasks


async def test_a_cancelled_child_spoils_the_unit(db: Any, session: str) -> None:
    with pytest.raises(RuntimeError, match="failed or was cancelled"):  # noqa: PT012
        async with db.transaction() as unit:
            await unit.append_message(session, "user", "a")
            child = asyncio.create_task(unit.append_message(session, "user", "b"))
            while not child.done():
                await asyncio.sleep(0)
                child.cancel()
            await asyncio.wait([child])
            await unit.append_message(session, "user", "c")
    assert await db.message_count(session) == 0


async def test_close_waits_for_the_block(db: Any, session: str, open_store: Any) -> None:
    is_held = asyncio.Event()

    async def block() -> None:
        async with db.transaction() as unit:
            await unit.append_message(session, "user", "a")
            is_held.set()
            await asyncio.sleep(0.1)
            await unit.append_message(session, "user", "b")

    holder = asyncio.create_task(block())
    await is_held.wait()
    await asyncio.gather(db.close(), holder)
    assert await open_store().message_count(session) == 2
    with pytest.raises(RuntimeError, match="closed"):
        await db.transaction().__aenter__()


async def test_close_ends_a_block_that_takes_too_long(
    db: Any, session: str, open_store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "CLOSE_AFTER", 0.1)
    is_held, is_closed = asyncio.Event(), asyncio.Event()

    async def block() -> None:
        async with db.transaction() as unit:
            await unit.append_message(session, "user", "a")
            is_held.set()
            await is_closed.wait()
            await unit.append_message(session, "user", "b")

    holder = asyncio.create_task(block())
    await is_held.wait()
    await db.close()
    is_closed.set()
    with pytest.raises(RuntimeError, match="closed"):
        await holder
    assert await open_store().message_count(session) == 0


async def test_a_block_at_rest_is_reported(
    db: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(transport, "WARN_AFTER", 0.02)
    with caplog.at_level(logging.WARNING, "hermes_orm.transaction"):
        async with db.transaction() as unit:
            await unit.set_meta("k", "v")
            await asyncio.sleep(0.1)
    assert caplog.text.count("nothing has happened") == 1


async def test_a_read_only_store_has_none(db: Any, open_store: Callable[..., Any]) -> None:
    await db.get_meta("open")
    with pytest.raises(ReadOnlyStoreError, match=r"^transaction: the store is read-only"):
        await open_store(read_only=True).transaction().__aenter__()
