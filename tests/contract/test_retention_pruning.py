"""Pruning and archiving by filters: usage-and-maintenance.md sections 3.1 to 3.5."""

from collections.abc import Callable
from typing import Any

import pytest

from hermes_orm.repositories.retention import deletion
from tests.contract.stories import Story, ids
from tests.raw import Raw

DAY = 86_400


async def candidates(db: Any, *args: Any, **filters: Any) -> set[str]:
    return set(ids(await db.list_prune_candidates(*args, **filters)))


async def every(raw: Raw, columns: str = "id") -> Any:
    rows = await raw.fetch(f"SELECT {columns} FROM sessions ORDER BY id")
    return dict(rows) if "," in columns else [row[0] for row in rows]


async def old(story: Story, session_id: str, now: float, **columns: Any) -> None:
    """A session that started and ended 100 days ago."""
    at = now - 100 * DAY
    await story.new(session_id, at, **{"ended_at": at, "end_reason": "done", **columns})


@pytest.fixture
async def ages(story: Story, clock: Any) -> None:
    """Usage 20."""
    await old(story, "silent", clock.time)
    await old(story, "spoken", clock.time)
    await story.msg("spoken", at=clock.time - DAY, active=0)
    await old(story, "touched", clock.time, last_activity_at=clock.time)
    await old(story, "open", clock.time, ended_at=None)


async def test_age_is_that_of_the_latest_message(
    db: Any, raw: Raw, clock: Any, ages: None
) -> None:  # usage 9.20
    assert await candidates(db, 90) == {"silent", "touched"}
    assert await db.count_open_prune_matches(older_than_days=90) == 1
    assert await db.prune_sessions() == 2
    assert await every(raw) == ["open", "spoken"]
    assert await candidates(db, 1) == set(), "the bound itself is not older"
    clock.advance(0.001)
    assert await candidates(db, 1) == {"spoken"}
    (row,) = await db.list_prune_candidates()
    assert list(row) == [
        "id", "source", "title", "model", "started_at", "last_active", "ended_at",
        "message_count", "archived",
    ]  # fmt: skip
    assert row["last_active"] == 1767225600.0 - DAY
    assert (row["message_count"], row["archived"], row["title"]) == (1, 0, None)


async def test_start_replaces_the_age(
    db: Any, raw: Raw, clock: Any, ages: None
) -> None:  # usage 9.21
    long_ago = clock.time - 99 * DAY
    assert await candidates(db, 500, started_before=long_ago) == {"silent", "spoken", "touched"}
    assert await candidates(db, 500, last_active_before=long_ago) == {"silent", "touched"}
    assert await candidates(db, started_after=long_ago) == set()
    wrong: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"titel_like": "x"}, TypeError, "'titel_like' is no filter; there are archived, branch_"),
        ({"older_than_days": -5}, ValueError, "older_than_days must not be negative; -5 was given"),
        ({"older_than_days": float("nan")}, ValueError, "older_than_days must be a finite number"),
        ({"older_than_days": float("inf")}, ValueError, "older_than_days must be a finite number"),
        ({"older_than_days": 10**400}, ValueError, "older_than_days must be a finite number"),
        ({"older_than_days": -1, "started_before": 1e12}, ValueError, "older_than_days must not"),
        ({"older_than_days": "90"}, TypeError, "older_than_days must be a number, not str"),
        ({"older_than_days": True}, TypeError, "older_than_days must be a number, not bool"),
        ({"started_before": float("nan")}, ValueError, "started_before must be a finite number"),
        ({"last_active_before": "2026"}, TypeError, "last_active_before must be a number"),
        ({"source": 5}, TypeError, "source must be text, not int"),
        ({"title_like": ["x"]}, TypeError, "title_like must be text, not list"),
        ({"cwd_prefix": b"/"}, TypeError, "cwd_prefix must be text, not bytes"),
        ({"min_messages": -1}, ValueError, "min_messages must not be negative"),
        ({"max_tokens": 1.5}, ValueError, "max_tokens must be a whole number; 1.5 was given"),
        ({"max_cost": float("nan")}, ValueError, "max_cost must be a finite number"),
        ({"archived": "no"}, TypeError, "archived must be True or False, not str"),
        ({"archived": 2}, ValueError, "archived must be True or False, and not"),
        ({"include_pinned": "yes"}, TypeError, "include_pinned must be True or False, not str"),
    ]
    for filters, kind, text in wrong:
        for operation in (
            db.prune_sessions,
            db.list_prune_candidates,
            db.count_open_prune_matches,
            db.archive_sessions,
        ):
            with pytest.raises(kind, match=f"^{text}"):
                await operation(**filters)
    assert await every(raw, "id, archived") == dict.fromkeys(await every(raw), 0)
    assert len(await every(raw)) == 4


async def test_children_of_pruned_sessions_become_roots(
    db: Any, raw: Raw, story: Story, clock: Any
) -> None:  # usage 9.22, I1
    for number in range(6):
        columns = {"parent": f"c{number - 1}"} if number else {}
        if number < 4:
            await old(story, f"c{number}", clock.time, **columns)
        else:
            await story.new(f"c{number}", clock.time, ended_at=clock.time, **columns)
    await story.new("d", parent="c1", config={"_delegate_from": "c1"})
    assert await db.prune_sessions(older_than_days=90) == 4
    assert await every(raw, "id, parent_session_id") == {"c4": None, "c5": "c4", "d": None}


async def test_filters_match_literally(
    db: Any, raw: Raw, story: Story, clock: Any
) -> None:  # usage 9.23, 9.24, I2
    paths = ["/w/repo", "/w/repo/sub", "/w/repo2", "/home/u/my_project", "/home/u/myXproject",
             "/home/u/100%", "C:\\a_b\\x", "C:\\aXb\\x"]  # fmt: skip
    for number, path in enumerate(paths):
        await old(story, path, clock.time + number, cwd=path)
    titles = ["user_auth", "user-auth", "USER_AUTHOR", "userXauth", "100%", "100 %", "Ä"]
    for title in titles:
        await old(story, title, clock.time, title=title)
    await old(story, "cheap", clock.time, estimated_cost_usd=1.0, actual_cost_usd=0.2)
    await old(
        story, "rich", clock.time, model="GPT_5", git_branch="fix/100%", billing_provider="OpenAI",
        user_id="u", chat_id="c", chat_type="dm", source="tg", message_count=3, tool_call_count=2,
        input_tokens=4, output_tokens=5, estimated_cost_usd=7.5, archived=1, end_reason="idle",
    )  # fmt: skip
    everything = {*paths, *titles, "cheap", "rich"}
    cases: list[tuple[dict[str, Any], set[str]]] = [
        ({"cwd_prefix": "/w/repo/"}, {"/w/repo", "/w/repo/sub"}),
        ({"cwd_prefix": "/home/u/my_project"}, {"/home/u/my_project"}),
        ({"cwd_prefix": "/home/u/100%"}, {"/home/u/100%"}),
        ({"cwd_prefix": "C:\\a_b\\"}, {"C:\\a_b\\x"}),
        ({"cwd_prefix": "/"}, set(paths[:6])),
        ({"cwd_prefix": ""}, everything),
        ({"title_like": "user_auth"}, {"user_auth", "USER_AUTHOR"}),
        ({"title_like": "100%"}, {"100%"}),
        ({"title_like": "ä"}, set()),
        ({"title_like": "x" * 60_000}, set()),
        ({"title_like": "a\0"}, set()),
        ({"title_like": " "}, {"100 %"}),
        ({"model_like": "pt_"}, {"rich"}),
        ({"branch_like": "0%"}, {"rich"}),
        ({"provider": "oPENAI"}, {"rich"}),
        ({"provider": "openai%"}, set()),
        ({"source": "tg"}, {"rich"}),
        ({"source": "", "title_like": "", "provider": ""}, everything),
        ({"user_id": "u", "chat_id": "c", "chat_type": "dm", "end_reason": "idle"}, {"rich"}),
        ({"user_id": "U"}, set()),
        ({"min_messages": 3, "max_messages": 3, "min_tool_calls": 2}, {"rich"}),
        ({"max_tool_calls": 2, "min_tool_calls": 1}, {"rich"}),
        ({"min_messages": 4}, set()),
        ({"max_messages": 0}, everything - {"rich"}),
        ({"min_tokens": 9, "max_tokens": 9.0}, {"rich"}),
        ({"min_tokens": 2**70}, set()),
        ({"min_cost": 0.1, "max_cost": 0.2}, {"cheap"}),
        ({"min_cost": 0.5}, {"rich"}),
        ({"max_cost": 0}, everything - {"rich", "cheap"}),
        ({"archived": True}, {"rich"}),
        ({"archived": 1}, {"rich"}),
        ({"archived": 0}, everything - {"rich"}),
        ({"archived": None, "min_cost": None}, everything),
    ]  # fmt: skip
    for filters, expected in cases:
        assert await candidates(db, **filters) == expected, filters
    rows = await db.list_prune_candidates(cwd_prefix="/")
    assert ids(rows) == paths[:6], "the longest idle first"
    assert await db.prune_sessions(None, title_like="user_auth") == 2
    assert await db.prune_sessions(None, cwd_prefix="C:\\a_b") == 1
    assert set(await every(raw)) == everything - {"user_auth", "USER_AUTHOR", "C:\\a_b\\x"}
    assert await db.prune_sessions(None) == len(everything) - 3
    assert await every(raw) == []


async def test_tokens_beyond_64_bits(db: Any, story: Story) -> None:
    """Two counters of 64 bits are added up without an error."""
    await story.new("huge", input_tokens=2**63 - 1, output_tokens=2**63 - 1, ended_at=1.0)
    await story.new("small", input_tokens=5, output_tokens=2**53, ended_at=1.0)
    assert await candidates(db, min_tokens=2**63 - 1) == {"huge"}
    assert await candidates(db, max_tokens=2**53 + 5) == {"small"}
    assert await db.prune_sessions(None, min_tokens=2**53 + 6) == 1


async def test_pinned_sessions_are_spared_in_bulk(
    db: Any, raw: Raw, story: Story, clock: Any
) -> None:  # usage 9.40, I3
    await old(story, "pinned", clock.time - 300 * DAY, pinned=1)
    assert await db.prune_sessions() == 0 == await db.archive_sessions(older_than_days=90)
    assert await candidates(db, 90) == set()
    assert (await db.maybe_auto_prune_and_vacuum())["pruned"] == 0
    assert await db.prune_sessions(include_pinned=None) == 0
    odd: Any = "no"
    for call in (db.delete_empty_sessions, db.prune_empty_ghost_sessions):
        with pytest.raises(TypeError, match="include_pinned must be True or False, not str"):
            await call(include_pinned=odd)
    with pytest.raises(TypeError, match="exclude_pinned must be True or False, not NoneType"):
        await db.archive_stale_sessions(3, exclude_pinned=None)
    assert await db.count_empty_sessions() == 0
    assert await candidates(db, 90, include_pinned=True) == {"pinned"}
    assert await db.archive_sessions(older_than_days=90, include_pinned=True) == 1
    assert await every(raw, "id, archived") == {"pinned": 1}
    assert await db.prune_sessions(include_pinned=True) == 1
    await old(story, "by id", clock.time, pinned=1)
    assert await db.delete_session("by id")


async def test_number_is_that_of_the_sessions(
    db: Any, raw: Raw, story: Story, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:  # I9
    for number in range(12):
        await old(story, f"s{number}", clock.time)
        await story.msg(f"s{number}", at=1)
    monkeypatch.setattr(deletion, "CHUNK", 5)
    assert await db.archive_sessions(90) == 12
    assert await db.prune_sessions(90) == 12
    assert await raw.fetch("SELECT count(*) FROM messages") == [(0,)]


async def test_open_sessions_are_archived_but_not_pruned(
    db: Any, raw: Raw, story: Story, clock: Any
) -> None:  # I8
    for number in range(10):
        await old(story, f"s{number}", clock.time, ended_at=None, end_reason=None)
    assert await db.prune_sessions(30) == 0 == await db.archive_sessions(30)
    assert await db.count_open_prune_matches(30) == 10
    assert await db.archive_stale_sessions(3) == 10
    assert await db.archive_stale_sessions(3) == 0


async def test_conversations_are_archived_whole(
    db: Any, raw: Raw, story: Story, clock: Any
) -> None:  # usage 9.25
    at = clock.time - 10 * DAY
    await story.new("r", at)
    await story.end("r", "compression", at)
    await story.new("tip", at, parent="r")
    await story.end("tip", "done", at)
    await story.new("branch", clock.time, parent="r", config={"_branched_from": "r"})
    assert await db.archive_sessions(older_than_days=5, end_reason="done") == 1
    assert await every(raw, "id, archived") == {"branch": 0, "r": 1, "tip": 1}
    assert await db.archive_sessions(older_than_days=5, end_reason="done") == 0
    assert await db.archive_sessions(5, end_reason="done", archived=True) == 1


async def test_idle_conversations_are_archived(
    db: Any, raw: Raw, story: Story, clock: Any
) -> None:  # usage 9.26
    long_ago = clock.time - 10 * DAY
    await story.new("open", long_ago)
    await story.new("pinned", long_ago, pinned=1)
    await story.new("touched", long_ago, last_activity_at=clock.time)
    await story.new("spoken", long_ago, last_activity_at=long_ago)
    await story.msg("spoken", at=clock.time - DAY)
    await story.new("root", long_ago)
    await story.end("root", "compression", long_ago)
    await story.new("tip", clock.time - 2 * DAY, parent="root")
    await story.new("idle root", long_ago, archived=1)
    await story.end("idle root", "compression", long_ago)
    await story.new("idle tip", long_ago, parent="idle root")
    nothing: tuple[Any, ...] = (-1, None, -0.5)
    assert [await db.archive_stale_sessions(days) for days in nothing] == [0, 0, 0]
    for bad, kind in ((float("nan"), ValueError), ("3", TypeError), (True, TypeError)):
        with pytest.raises(kind, match="idle_days must be a"):
            await db.archive_stale_sessions(bad)
    assert await db.archive_stale_sessions(3) == 2
    archived = {"open", "idle root", "idle tip"}
    flags = await every(raw, "id, archived")
    assert {key for key, flag in flags.items() if flag} == archived
    by_itself = await every(raw, "id, auto_archived")
    assert {key for key, flag in by_itself.items() if flag} == archived - {"idle root"}
    assert await db.archive_stale_sessions(3, exclude_pinned=False) == 1
    clock.advance(3 * DAY)
    assert await db.archive_stale_sessions(3) == 2, "spoken, and root with its tip"
    assert (await every(raw, "id, archived"))["root"] == 1


async def test_session_that_opens_meanwhile_is_spared(
    db: Any, raw: Raw, story: Story, clock: Any, open_store: Callable[..., Any]
) -> None:
    """What is locked is looked at again: a host may resume a session that a prune has found."""
    if not raw.is_postgres:
        return  # where one process writes at a time
    for key in ("found", "resumed"):
        await old(story, key, clock.time)
    delete = deletion.DeletionRepository.delete

    def late(self: Any, given: Any, wanted: Any = None) -> Any:
        given = list(given)
        raw._execute("UPDATE sessions SET ended_at = NULL WHERE id = 'resumed'", ())
        return delete(self, given, wanted)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(deletion.DeletionRepository, "delete", late)
        assert await db.prune_sessions() == 1
    assert await every(raw) == ["resumed"]
