"""Ids by their beginnings."""

from typing import Any

import pytest


@pytest.fixture
async def named(db: Any) -> Any:
    """The store, with the ids of example 11 and some more."""
    for session_id in ("abc", "abcd", "abX", "x%y", "a_c", "20260101_aB1", "20260102_ab1", "École"):
        await db.create_session(session_id, "cli")
    return db


@pytest.mark.parametrize(
    ("prefix", "found"),
    [
        ("abc", "abc"),
        ("abcd", "abcd"),
        ("abx", "abX"),
        ("ABCD", "abcd"),
        ("ab", None),
        ("x%", "x%y"),
        ("a_", "a_c"),
        ("a_c", "a_c"),
        ("zz", None),
        ("", None),
        ("2026", None),
        ("20260101", "20260101_aB1"),
        ("20260101_", "20260101_aB1"),
        ("20260102_AB", "20260102_ab1"),
        ("20260102_ab12", None),
        ("É", "École"),
        ("éc", None),
        ("ÉCO", "École"),
        ("abc\0", None),
        ("abc\ud800", None),
        ("x" * 60_000, None),
        ("%" * 60_000, None),
    ],
)
async def test_one_session_that_begins_so(named: Any, prefix: str, found: str | None) -> None:
    assert await named.resolve_session_id(prefix) == found


async def test_hidden_archived_and_child_sessions_are_found(db: Any, raw: Any) -> None:
    for session_id in ("Sess_ABC", "k_0", "kX1"):
        await db.create_session(session_id, "cli", parent_session_id=None)
    await db.create_session("child", "tool", parent_session_id="k_0")
    await raw.execute("UPDATE sessions SET archived = 1, hidden = 1")
    assert await db.resolve_session_id("sess_") == "Sess_ABC"
    assert await db.resolve_session_id("k_") == "k_0"
    assert await db.resolve_session_id("CH") == "child"


async def test_empty_text_is_an_id_or_the_only_session(db: Any) -> None:
    assert await db.resolve_session_id("") is None
    await db.create_session("only", "cli")
    assert await db.resolve_session_id("") == "only"
    await db.create_session("", "cli")
    assert await db.resolve_session_id("") == ""


async def test_none_is_refused(db: Any, session: str) -> None:
    with pytest.raises(TypeError, match="session_id_or_prefix"):
        await db.resolve_session_id(None)
