"""Deleting sessions: usage-and-maintenance.md section 2."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hermes_orm import UnknownSessionError
from hermes_orm.repositories.retention import deletion
from tests.contract.stories import Story
from tests.contract.turns import user

DAY = 86_400
OWNED = {
    "messages": "session_id",
    "session_model_usage": "session_id",
    "compression_locks": "session_id",
    "session_turn_leases": "conversation_id",
    "hermes_session_recency": "session_id",
    "sessions": "id",
}


async def left(raw: Any, session_id: str) -> dict[str, int]:
    """How many rows each table still holds of a session, where there are any."""
    counts = {
        table: (await raw.fetch(f"SELECT count(*) FROM {table} WHERE {owner} = ?", session_id))[0][
            0
        ]
        for table, owner in OWNED.items()
    }
    return {table: count for table, count in counts.items() if count}


async def parents(raw: Any) -> dict[str, str | None]:
    return dict(await raw.fetch("SELECT id, parent_session_id FROM sessions ORDER BY id"))


@pytest.fixture
async def family(story: Story) -> None:
    """Usage 13: delegates d1, d2, d3 of p, branch b, d4 a plain child of d1."""
    await story.new("p")
    await story.new("d1", parent="p", config={"_delegate_from": "p"})
    await story.new("d2", parent="d1", config={"_delegate_from": "elsewhere"})
    await story.new("d3", config={"_delegate_from": "p"})
    await story.new("b", parent="p", config={"_branched_from": "p"})
    await story.new("d4", parent="d1")
    await story.new("bad", model_config='{"_delegate_from": "p"')


async def test_delegates_go_and_other_children_become_roots(
    db: Any, raw: Any, family: None
) -> None:  # usage 9.13
    assert await db.get_session_delete_targets("p") == ["p", "d1", "d2", "d3"]
    assert await db.get_session_delete_targets("d2") == ["d2"]
    assert await db.get_session_delete_targets("nope") == []
    before = await parents(raw)
    for expected in (["p"], [], ["p", "d1", "d2", "d3", "b"], ["p", "d1", "d2", "d3", None]):
        assert not await db.delete_session("p", expected_delete_ids=expected)
    assert await parents(raw) == before
    assert await db.delete_session("p", expected_delete_ids=["d3", "d2", "p", "d1"])
    assert await parents(raw) == {"b": None, "bad": None, "d4": None}
    assert not await db.delete_session("p")
    with pytest.raises(TypeError, match="expected_delete_ids must be a list of ids"):
        await db.delete_session("b", expected_delete_ids="b")


async def test_delegates_of_an_unknown_session_stay(db: Any, raw: Any, story: Story) -> None:
    await story.new("d", config={"_delegate_from": "gone"})
    assert not await db.delete_session("gone")
    assert await db.delete_sessions(["gone"]) == 0
    assert await parents(raw) == {"d": None}


async def test_ring_of_delegates_is_deleted(db: Any, raw: Any, story: Story) -> None:  # G: a→b→a
    for key, other in ("ab", "ba"):
        await story.new(key, config={"_delegate_from": other})
    await raw.execute("UPDATE sessions SET parent_session_id = 'a' WHERE id = 'b'")
    await raw.execute("UPDATE sessions SET parent_session_id = 'b' WHERE id = 'a'")
    assert await db.get_session_delete_targets("a") == ["a", "b"]
    assert await db.delete_session("a")
    assert await parents(raw) == {}


async def test_nothing_of_a_deleted_session_is_left(db: Any, raw: Any) -> None:  # I7, usage 2.3
    for key in ("gone", "kept"):
        await db.create_session(key, "cli", system_prompt=f"prompt of {key}")
        await db.append_message(key, "user", f"needle in {key}")
        assert await db.try_acquire_compression_lock(key, "A")
        assert await db.try_acquire_session_turn_lease(key, "A")
        await raw.execute(
            "INSERT INTO session_model_usage (session_id, model) VALUES (?, 'm')", key
        )
    await db.create_session("same", "cli", system_prompt="prompt of kept")
    await db.set_session_pinned("gone", True)
    assert await db.delete_session("gone")
    assert await left(raw, "gone") == {}
    assert await left(raw, "kept") == dict.fromkeys(OWNED, 1)
    assert [hit["session_id"] for hit in await db.search_messages("needle")] == ["kept"]
    if raw.is_postgres:
        assert await raw.fetch("SELECT count(*) FROM message_search") == [(1,)]
    assert await db.delete_session("same")
    assert await raw.fetch("SELECT prompt FROM system_prompts") == [("prompt of kept",)]
    await raw.execute(
        "UPDATE sessions SET tool_names = system_prompt_hash, system_prompt_hash = NULL"
    )
    await db.create_session("another", "cli", system_prompt="prompt of kept")
    assert await db.delete_session("another")
    assert await raw.fetch("SELECT count(*) FROM system_prompts") == [(1,)], "a list of tools"
    with pytest.raises(UnknownSessionError):
        await db.append_message("gone", "user", "late")
    await db.create_session("gone", "cli")
    assert await db.try_acquire_compression_lock("gone", "B")
    assert await db.try_acquire_session_turn_lease("gone", "B")


async def test_files_go_with_their_session(
    db: Any, story: Story, tmp_path: Path
) -> None:  # usage 9.14, 9.15
    folder = tmp_path / "sessions"
    folder.mkdir()
    target = tmp_path / "target.json"
    names = [
        "p.json", "p.jsonl", "request_dump_p_1.json", "request_dump_p_1_2.json",
        "request_dump_p_1.JSON", "P.json", "p.txt", "request_dump_p.json",
        "request_dump_p_q_3.json",
    ]  # fmt: skip
    for path in [*(folder / name for name in names), target, tmp_path / "evil.json"]:
        path.write_text("{}")
    (folder / "l.json").symlink_to(target)
    (folder / "l.jsonl").mkdir()
    (folder / "[a-z].json").write_text("{}")
    for key in ("p", "p_q", "../evil", "l", "*", "[a-z]", "..", "q"):
        await story.new(key)
    for key in ("p", "../evil", "l", "*", ".."):
        assert await db.delete_session(key, folder)
    kept = {"request_dump_p_1.JSON", "P.json", "p.txt", "request_dump_p.json"}
    kept |= {"request_dump_p_q_3.json", "l.jsonl", "[a-z].json"}
    assert {path.name for path in folder.iterdir()} == kept
    assert target.exists()
    assert (tmp_path / "evil.json").exists()
    assert await db.delete_sessions(["p_q", "[a-z]"], str(folder)) == 2
    assert {path.name for path in folder.iterdir()} == kept - {
        "request_dump_p_q_3.json",
        "[a-z].json",
    }
    with pytest.raises(TypeError, match="sessions_dir must be a path or None, not int"):
        await db.delete_session("q", 5)
    assert await db.delete_session("q", tmp_path / "missing")


async def test_only_unused_sessions_count_as_empty(db: Any, story: Story) -> None:  # usage 9.16
    await story.new("empty")
    await story.new("titled", title="T")
    await story.new("parent")
    await story.new("child", parent="parent", title="C")
    await story.new("spoken")
    await story.msg("spoken", active=0)
    await story.raw.execute("UPDATE sessions SET message_count = 0")
    answers = {
        key: await db.delete_session_if_empty(key)
        for key in ("empty", "titled", "parent", "spoken", "nope", "a\0")
    }
    assert [key for key, answer in answers.items() if answer] == ["empty"]
    assert await db.session_count() == 4


async def test_named_sessions_are_counted_once(db: Any, raw: Any, story: Story) -> None:
    for key in ("q", "r", "p"):
        await story.new(key)
    await story.new("c", parent="p")
    await story.new("qc", parent="q")
    await story.new("qd", parent="q", config={"_delegate_from": "q"})
    await story.new("d", parent="p", config={"_delegate_from": "p"})
    odd: Any = ["q", "q", "r", "nope", "", None, 5, "a\0"]
    assert await db.delete_sessions(odd) == 2  # usage 9.17
    assert await parents(raw) == {"c": "p", "d": "p", "p": None, "qc": None}
    assert await db.delete_sessions(["p", "c", "nope", "p"]) == 2  # I6
    assert await parents(raw) == {"qc": None}
    assert await db.delete_sessions([]) == 0
    with pytest.raises(TypeError, match="session_ids must be a list of ids"):
        await db.delete_sessions("qc")


async def test_empty_sessions_are_swept(db: Any, raw: Any, story: Story) -> None:  # usage 9.18
    for key in ("empty", "titled", "open", "archived", "pinned", "undone", "parent"):
        await story.new(key)
        await story.end(key, "done")
    await story.new("child", parent="parent", config={"_delegate_from": "parent"})
    await raw.execute("UPDATE sessions SET ended_at = NULL WHERE id = 'open'")
    for key, change in {
        "archived": "archived = 1",
        "pinned": "pinned = 1",
        "titled": "title = 'T'",
    }.items():
        await raw.execute(f"UPDATE sessions SET {change} WHERE id = ?", key)
    for at in range(3):
        await story.msg("undone", at=at, active=0)
    await raw.execute("UPDATE sessions SET message_count = 0 WHERE id = 'undone'")
    assert await db.count_empty_sessions() == 3 == await db.delete_empty_sessions()
    survivors = {"archived": None, "child": None, "open": None, "pinned": None, "undone": None}
    assert await parents(raw) == survivors
    assert await db.delete_empty_sessions(include_pinned=True) == 1
    assert await db.delete_empty_sessions(include_pinned=True) == 0
    assert set(await parents(raw)) == {"archived", "child", "open", "undone"}


async def test_ghosts_are_swept(db: Any, raw: Any, story: Story, clock: Any) -> None:  # usage 9.19
    old = clock.time - 2 * DAY
    ghosts: dict[str, dict[str, Any]] = {
        "g": {}, "archived": {"archived": 1}, "pinned": {"pinned": 1}, "titled": {"title": "T"},
        "cli": {"source": "cli"}, "young": {"started_at": clock.time - DAY}, "spoken": {},
        "open": {},
    }  # fmt: skip
    for key, columns in ghosts.items():
        await story.new(key, old, **{"source": "tui", **columns})
        if key != "open":
            await story.end(key, None, old)
    await story.msg("spoken", active=0)
    await story.new("c", parent="g")
    assert await db.prune_empty_ghost_sessions() == 2
    left = {"c", "pinned", "titled", "cli", "young", "spoken", "open"}
    assert await parents(raw) == dict.fromkeys(sorted(left))
    assert await db.prune_empty_ghost_sessions(include_pinned=True) == 1


async def test_many_ids_fit(db: Any, raw: Any, story: Story) -> None:  # I4
    numbers = range(2_500)
    await story.insert(
        "sessions", *({"id": f"s{n}", "source": "cli", "started_at": 1.0} for n in numbers)
    )
    await raw.execute("UPDATE sessions SET parent_session_id = 's2499' WHERE id <> 's2499'")
    wanted = [f"s{number}" for number in range(70_000)]
    assert await db.delete_sessions(wanted[1:]) == 2_499
    assert await parents(raw) == {"s0": None}


async def test_failure_in_a_chunk_leaves_whole_sessions(
    db: Any, raw: Any, story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(6):
        await story.new(f"s{number}")
        await story.msg(f"s{number}")
    monkeypatch.setattr(deletion, "CHUNK", 2)
    delete = deletion.DeletionRepository._delete
    chunks = []

    def failing(self: Any, rows: Any) -> None:
        delete(self, rows)
        chunks.append(rows)
        if len(chunks) == 2:
            raise OSError("x")

    with monkeypatch.context() as patched:
        patched.setattr(deletion.DeletionRepository, "_delete", failing)
        with pytest.raises(OSError, match="x"):
            await db.delete_sessions([f"s{number}" for number in range(6)])
    assert await raw.fetch("SELECT count(*) FROM messages") == [(6,)]
    assert await db.session_count() == 6
    assert await db.delete_sessions([f"s{number}" for number in range(5)]) == 5
    assert await raw.fetch("SELECT session_id FROM messages") == [("s5",)]


async def test_late_usage_brings_no_session_back(db: Any, open_store: Callable[..., Any]) -> None:
    """Usage 9.42, I5."""
    await db.create_session("s", "cli")
    for _ in range(10):
        await db.queue_token_counts("s", input_tokens=1)
    assert await db.delete_session("s")
    await db.flush_token_counts()
    await db.update_token_counts("s", input_tokens=3)
    await db.record_auxiliary_usage("s", "title", input_tokens=3)
    await db.touch_session_activity("s")
    assert await db.get_session("s") is None
    await db.create_session("s", "cli")
    await db.update_token_counts("s", input_tokens=3)
    assert (await db.get_session("s"))["input_tokens"] == 3
    assert await db.delete_session("s")
    await open_store().update_token_counts("s", input_tokens=3)
    assert (await db.get_session("s"))["source"] == "unknown"


async def test_opposite_deletions_and_appends_do_not_lock_each_other(
    db: Any, raw: Any, open_store: Callable[..., Any]
) -> None:  # K9
    ids = [f"s{number}" for number in range(30)]
    for key in ids:
        await db.create_session(key, "cli")
        await db.append_messages_batch(key, [user("x")] * 5)
    other = open_store()

    async def append(key: str) -> None:
        try:
            await other.append_message(key, "user", "late")
        except UnknownSessionError:
            return

    numbers = await asyncio.gather(
        db.delete_sessions(ids), other.delete_sessions(ids[::-1]), *map(append, ids)
    )
    assert sum(number or 0 for number in numbers) == 30
    assert await raw.fetch("SELECT count(*) FROM messages") == [(0,)]
    assert json.dumps(await parents(raw)) == "{}"


async def test_delegates_of_any_depth(db: Any, story: Story, sent: Any) -> None:
    """A long chain of subagents that ends where it began is found with few statements."""
    for number in range(30):
        marker = {"_delegate_from": f"d{(number or 30) - 1}"}
        await story.new(f"d{number}", config=marker)
    await story.new("other", config={"_delegate_from": "x"})
    sent()
    targets = await db.get_session_delete_targets("d7")
    assert (targets[0], len(targets)) == ("d7", 30)
    assert sent() < 10
    assert await db.delete_session("d7", expected_delete_ids=targets) is True
    assert await db.session_count() == 1
