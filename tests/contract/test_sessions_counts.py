"""Counting sessions and messages: sessions.md section 10.10."""

from typing import Any

import pytest


@pytest.fixture
async def four(db: Any, raw: Any) -> Any:
    """Sessions a, b hidden, c ended, d archived."""
    for key, source in [("a", ""), ("b", "cli"), ("c", "tg"), ("d", "tg")]:
        await db.create_session(key, source)
    await raw.execute("UPDATE sessions SET hidden = 1 WHERE id = 'b'")
    await raw.execute("UPDATE sessions SET archived = 1 WHERE id = 'd'")
    await db.end_session("c", "done")
    return db


@pytest.mark.parametrize(
    ("filters", "count"),
    [
        ({}, 3),
        ({"source": "tg"}, 1),
        ({"source": "", "sources": ["tg", "cli"]}, 2),
        ({"source": "tg", "sources": ["cli"]}, 1),
        ({"sources": []}, 3),
        ({"sources": ["nope"]}, 0),
        ({"source": "t\0"}, 0),
        ({"archived_only": True}, 1),
        ({"archived_only": True, "include_archived": True}, 1),
        ({"include_archived": True}, 4),
        ({"exclude_sources": ["tg"]}, 2),
        ({"exclude_sources": ["tg"], "source": "tg"}, 0),
        ({"exclude_sources": []}, 3),
        ({"include_hidden": False}, 2),
        ({"min_message_count": 0}, 3),
        ({"min_message_count": -1}, 3),
        ({"min_message_count": 1}, 0),
    ],
)
async def test_sessions_are_counted_by_filters(four: Any, filters: Any, count: int) -> None:
    assert await four.session_count(**filters) == count


async def test_sources_are_counted(four: Any) -> None:
    counts = await four.session_count_by_source()
    assert list(counts.items()) == [("cli", 2), ("tg", 1)]
    assert await four.session_count_by_source(include_archived=True) == {"cli": 2, "tg": 2}
    assert await four.session_count_by_source(archived_only=True) == {"tg": 1}
    assert await four.session_count_by_source(include_hidden=False) == {"cli": 1, "tg": 1}
    assert await four.count_empty_sessions() == 1


async def test_at_least_n_sessions(four: Any) -> None:
    answers = [await four.session_count_ge(n) for n in (-1, 0, 1, 4, 5)]
    assert answers == [True, True, True, True, False]
    assert await four.session_count_ge()
    assert [await four.session_count_ge(n) for n in (1.5, "4", 2**70)] == [True, True, False]
    for bad in (float("nan"), float("inf"), "many"):
        with pytest.raises(ValueError, match="n must be a whole number"):
            await four.session_count_ge(bad)
    with pytest.raises(TypeError, match="n must be a whole number, not NoneType"):
        await four.session_count_ge(None)


async def test_empty_store_counts_nothing(db: Any) -> None:
    assert await db.session_count() == 0 == await db.message_count()
    assert await db.session_count_by_source() == {}
    assert not await db.session_count_ge()


@pytest.mark.parametrize(
    ("prefix", "count"),
    [("/w", 4), ("/w/", 4), ("/a_b", 1), ("/nope", 0), ("/", 7), ("", 7), ("/W", 0), ("/w\0", 0)],
)
async def test_path_prefix_is_a_folder(db: Any, prefix: str, count: int) -> None:
    for cwd in ["/w", "/w/x", "/w2", "/w\\x", "/w/", "/a_b/c", "/aXb/c"]:
        await db.create_session(cwd, "cli", cwd=cwd)
    assert await db.session_count(cwd_prefix=prefix) == count


async def test_children_can_be_left_out(db: Any) -> None:
    await db.create_session("p", "cli")
    for child, marker in [("sub", None), ("del", "_delegate_from"), ("br", "_branched_from")]:
        config = {marker: "p"} if marker else None
        await db.create_session(child, "cli", parent_session_id="p", model_config=config)
    await db.create_session("rs", "cli", parent_session_id="p", model_config={"_reset_from": "p"})
    await db.create_session("od", "cli", model_config={"_delegate_from": "p"})
    await db.create_session("tool", "tool")
    assert await db.session_count(exclude_children=True) == 4
    assert await db.session_count() == 7
    assert await db.session_count_by_source(exclude_children=True) == {"cli": 3, "tool": 1}


async def test_old_branches_are_no_children(db: Any, raw: Any) -> None:
    await db.create_session("p", "cli")
    await db.end_session("p", "branched")
    await raw.execute("UPDATE sessions SET ended_at = 5")
    for started in (4, 5, 6):
        await db.create_session(f"c{started}", "cli", parent_session_id="p")
        await raw.execute(
            "UPDATE sessions SET started_at = ? WHERE id = ?", float(started), f"c{started}"
        )
    assert await db.session_count(exclude_children=True) == 3


async def test_malformed_config_counts_as_none(db: Any, raw: Any) -> None:
    await db.create_session("p", "cli")
    await db.create_session("c", "cli", parent_session_id="p")
    await raw.execute("UPDATE sessions SET model_config = '{bad'")
    assert await db.session_count(exclude_children=True) == 1


async def test_messages_are_counted(db: Any, raw: Any) -> None:
    for session_id, active in [("a", 0), ("a", 0), ("b", 1)]:
        await db.create_session(session_id, "cli")
        await raw.execute(
            "INSERT INTO messages (session_id, role, timestamp, active) VALUES (?, 'user', 1.0, ?)",
            session_id,
            active,
        )
    counts = [await db.message_count(key) for key in ("a", "nope", "a\0", None, "")]
    assert counts == [2, 0, 0, 3, 3]
    assert await db.message_count() == 3


async def test_empty_sessions_are_those_that_would_be_deleted(db: Any, raw: Any) -> None:
    flags = {"archived": "archived = 1", "pinned": "pinned = 1", "undone": "title = 'T'"}
    for session_id in ("plain", "titled", "open", "spoken", *flags):
        await db.create_session(session_id, "cli")
    await raw.execute("UPDATE sessions SET title = 'U' WHERE id = 'titled'")
    for session_id, change in flags.items():
        await raw.execute(f"UPDATE sessions SET {change} WHERE id = ?", session_id)
    for session_id in ("spoken", "undone"):
        await db.append_message(session_id, "user", "hi")
    await raw.execute("UPDATE messages SET active = 0 WHERE session_id = 'undone'")
    await raw.execute("UPDATE sessions SET message_count = 0 WHERE id = 'undone'")
    await raw.execute("UPDATE sessions SET ended_at = 9 WHERE id <> 'open'")
    assert await db.count_empty_sessions() == 2, "plain and titled"
    assert await db.count_empty_sessions(include_pinned=True) == 3
