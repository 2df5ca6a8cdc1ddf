"""Working directories, branches and repositories of sessions."""

import asyncio
from pathlib import PurePosixPath
from typing import Any

import pytest

from hermes_orm import workspace_key
from tests.contract.stories import Story


async def place_of(db: Any, session_id: str = "s") -> tuple[Any, Any, Any]:
    row = await db.get_session(session_id)
    return row["cwd"], row["git_branch"], row["git_repo_root"]


async def generation(raw: Any) -> int:
    rows = await raw.fetch("SELECT git_metadata_generation FROM sessions WHERE id = 's'")
    return int(rows[0][0])


# Example 12


async def test_blank_git_values_are_kept_unless_replaced(db: Any, session: str) -> None:
    move = db.update_session_cwd
    await move(session, "/a", "main", "/r")
    assert await place_of(db) == ("/a", "main", "/r")
    await move(session, "/b")
    assert await place_of(db) == ("/b", "main", "/r")
    await move(session, "/b", " dev ", "  ")
    assert await place_of(db) == ("/b", "dev", "/r")
    await move(session, "/c", replace_git_meta=True)
    assert await place_of(db) == ("/c", None, None)
    await move(session, " /d ", " ", "\t/q\n", replace_git_meta=True)
    assert await place_of(db) == (" /d ", None, "/q")
    for nothing in ("", None):
        await move(session, nothing, "x", "/x", replace_git_meta=True)
        assert await place_of(db) == (" /d ", None, "/q")


async def test_unknown_sessions_are_no_errors(db: Any, session: str) -> None:
    for unknown in ("nope", "", None, "a\0", "a\ud800"):
        assert await db.update_session_cwd(unknown, "/w") is None
    assert await place_of(db) == (None, None, None)


async def test_session_without_an_id_is_not_moved(db: Any) -> None:
    await db.create_session("", "cli")
    await db.update_session_cwd("", "/w")
    assert await place_of(db, "") == (None, None, None)


async def test_text_that_cannot_be_stored_is_replaced(db: Any, session: str) -> None:
    await db.update_session_cwd(session, "/x\0y", "b\ud800", "/r\0")
    assert await place_of(db) == ("/x\ufffdy", "b\ufffd", "/r\ufffd")
    await db.update_session_cwd(session, PurePosixPath("/p"))
    assert (await place_of(db))[0] == "/p"


async def test_each_move_counts(db: Any, raw: Any, session: str) -> None:
    for cwd, count in [("/a", 1), ("/a", 1), ("/b", 2), ("/b", 2), ("/a", 3)]:
        await db.update_session_cwd(session, cwd, "main", replace_git_meta=count == 2)
        assert await generation(raw) == count


# Example 75


async def test_directories_with_their_sessions(db: Any, raw: Any) -> None:
    story = Story(raw)
    await story.new("a", 1, cwd="/w")
    await story.new("b", 2, cwd="/w", hidden=1, parent="a")
    await story.end("b", "done", 9)
    await story.new("c", 3, cwd=" ")
    await story.new("d", 4)
    await story.new("f", 4, cwd="")
    await story.new("e", 5, cwd="/z", archived=1)
    assert await db.distinct_session_cwds() == [{"cwd": "/w", "sessions": 2, "last_active": 9.0}]
    everything = await db.distinct_session_cwds(include_archived=True)
    assert [(row["cwd"], row["sessions"]) for row in everything] == [("/w", 2), ("/z", 1)]


async def test_directories_are_told_apart_and_ordered_by_their_exact_text(
    db: Any, raw: Any
) -> None:
    for number, cwd in enumerate(["/w/", "/W", "/w", " /w", "/é", "/z", "\t"]):
        await Story(raw).new(f"s{number}", number, cwd=cwd)
    found = [row["cwd"] for row in await db.distinct_session_cwds()]
    assert found == ["\t", " /w", "/W", "/w", "/w/", "/z", "/é"]


# Example 76


async def test_missing_repositories_are_filled(db: Any, raw: Any) -> None:
    await Story(raw).new("a", cwd="/w", archived=1)
    await Story(raw).new("b", cwd="/w", git_repo_root="/have")
    await Story(raw).new("c", cwd="/w", git_repo_root="", parent="a", hidden=1)
    await Story(raw).new("d", cwd="/w/")
    await Story(raw).new("e", cwd="/x\ufffd")
    await db.backfill_repo_roots({"/w": "/root", "/x": "", "": "/y", "/x\ud800": "/q\0"})
    roots = [(await place_of(db, key))[2] for key in "abcde"]
    assert roots == ["/root", "/have", "/root", None, "/q\ufffd"]
    await db.backfill_repo_roots({"/w": "/other", "/w/": "/root"})
    assert [(await place_of(db, key))[2] for key in "abcd"] == ["/root", "/have", "/root", "/root"]


async def test_two_stores_fill_repositories(db: Any, open_store: Any, raw: Any) -> None:
    other = open_store()
    for number in range(30):
        await Story(raw).new(f"s{number}", cwd=f"/w{number % 3}")
    roots = {f"/w{number}": f"/r{number}" for number in range(3)}
    backwards = dict(reversed(roots.items()))
    await asyncio.gather(db.backfill_repo_roots(roots), other.backfill_repo_roots(backwards))
    found = await raw.fetch("SELECT DISTINCT cwd, git_repo_root FROM sessions ORDER BY 1")
    assert found == list(roots.items())


# Example 77


@pytest.mark.parametrize(
    ("row", "key"),
    [
        ({"git_repo_root": " /r ", "cwd": "/c"}, "/r"),
        ({"git_repo_root": "", "cwd": " /c "}, "/c"),
        ({"git_repo_root": None, "cwd": "/c", "git_branch": "b"}, "/c"),
        ({"git_repo_root": " ", "cwd": "\t"}, None),
        ({}, None),
    ],
)
def test_workspace_key(row: dict[str, Any], key: str | None) -> None:
    assert workspace_key(row) == key
