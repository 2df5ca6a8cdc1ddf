"""Exporting sessions: usage 4.1 to 4.3, and the field reports of that kind."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hermes_orm import SessionExportTooLargeError
from hermes_orm.repositories.portability.exports import ExportRepository
from tests.contract.stories import Story, ids
from tests.contract.turns import assistant, contents, tool, user


async def streamed(db: Any, *args: Any, **kwargs: Any) -> list[Any]:
    return [session async for session in db.iter_export(*args, **kwargs)]


def configure(home: Path, limit: int) -> None:
    home.mkdir(exist_ok=True)
    (home / "config.yaml").write_text(f"sessions:\n  max_export_messages: {limit}\n")


async def test_session_is_its_row_with_its_live_messages(db: Any) -> None:
    await db.create_session("s", "cli", system_prompt="be brief", model_config={"k": 1})
    await db.append_messages_batch(
        "s", [user([{"type": "text", "text": "a"}]), assistant("b", "c1"), tool("c", "c1")]
    )
    await db.append_messages_batch("s", [user("undone"), assistant("x")])
    rows = await db.get_messages("s")
    await db.rewind_to_message("s", rows[3]["id"])
    await db.create_session("", "cli")
    await db.append_message("", "user", "of an empty id")
    exported = await db.export_session("s")
    assert exported.pop("messages") == rows[:3]
    assert exported == await db.get_session("s")
    assert contents((await db.export_session(""))["messages"]) == ["of an empty id"]
    for unknown in ("nope", "a\0", None):
        assert await db.export_session(unknown) is None
        assert await db.export_session_lineage(unknown) is None


async def test_lineage(db: Any, story: Story) -> None:
    """Usage 29, engine 34."""
    await story.chain(title="Root")
    for session_id, texts in (("root", "ab"), ("mid", ""), ("tip", "cde")):
        for text in texts:
            await story.msg(session_id, text)
    await story.new("branch", 4, parent="mid", config={"_branched_from": "mid"})
    for start in ("root", "mid", "tip"):
        lineage = await db.export_session_lineage(start)
        assert lineage["id"] == "tip"
        assert lineage["lineage_session_ids"] == ["root", "mid", "tip"]
        assert lineage["message_count"] == 5
        assert contents(lineage["messages"]) == list("abcde")
        segments = [await db.export_session(part) for part in ("root", "mid", "tip")]
        assert lineage["segments"] == segments
        assert lineage["title"] == segments[-1]["title"]
    branch = await db.export_session_lineage("branch")
    assert branch["lineage_session_ids"] == ["branch"]


async def test_all_newest_first(db: Any, story: Story) -> None:
    for session_id, start, source in (("b", 10, "cli"), ("a", 10, "cli"), ("c", 5, "cron")):
        await story.new(session_id, start, source=source)
    await story.msg("c", "late", 99)
    exported = await db.export_all()
    assert ids(exported) == ["c", "b", "a"]
    assert [session["last_active"] for session in exported] == [99.0, 10.0, 10.0]
    for session in exported:
        alone = await db.export_session(session["id"])
        assert {**alone, "last_active": session["last_active"]} == session
    assert ids(await db.export_all("cli")) == ids(await db.export_all(source="cli")) == ["b", "a"]
    assert await db.export_all("none") == []
    assert ids(await streamed(db)) == ["c", "a", "b"], "in the order of their start"
    assert ids(await streamed(db, "cli")) == ["a", "b"]
    by_id = {session["id"]: session for session in exported}
    assert {session["id"]: session for session in await streamed(db)} == by_id


async def test_limit(db: Any, story: Story, hermes_home: Path) -> None:
    """Usage 4.1: the guard comes first, per session; P2: `max_export_messages` 0 is no limit."""
    await story.chain()
    for session_id, count in (("root", 2), ("mid", 3)):
        for number in range(count):
            await story.msg(session_id, str(number))
    configure(hermes_home, 2)
    assert len((await db.export_session("root"))["messages"]) == 2
    refused = (
        lambda: db.export_session("mid"),
        lambda: db.export_session_lineage("root"),
        lambda: db.export_all(),
        lambda: streamed(db),
    )
    for export in refused:
        with pytest.raises(SessionExportTooLargeError) as failure:
            await export()
        error = failure.value
        assert (error.session_id, error.message_count, error.limit) == ("mid", 3, 2)
    assert len(await streamed(db, max_messages=0)) == 3
    with pytest.raises(ValueError, match="max_messages"):
        await streamed(db, max_messages=-1)
    configure(hermes_home, 0)
    assert len(await db.export_all()) == 3


async def test_statements_do_not_grow_with_sessions(db: Any, sent: Callable[[], int]) -> None:
    """Field report P5, engine 34."""
    used = []
    for number in range(60):
        await db.create_session(f"s{number}", "cli")
        await db.append_message(f"s{number}", "user", "hi")
        if number in (3, 59):
            sent()
            await db.export_all()
            used.append(sent())
    assert used == [3, 3], "the list, its rows, their messages"
    await db.export_session("s1")
    assert sent() == 2


async def test_queued_usage_is_in_it(db: Any) -> None:
    """Usage 1.5."""
    await db.create_session("s", "cli")

    async def one(export: Any) -> Any:
        return (await export())[0]

    exports: tuple[Callable[[], Any], ...] = (
        lambda: db.export_session("s"),
        lambda: db.export_session_lineage("s"),
        lambda: one(db.export_all),
        lambda: one(lambda: streamed(db)),
    )
    for number, export in enumerate(exports, 1):
        await db.queue_token_counts("s", input_tokens=5)
        assert (await export())["input_tokens"] == 5 * number


async def test_portions_hold_every_session_once(db: Any, clock: Any, monkeypatch: Any) -> None:
    module = "hermes_orm.repositories.portability.exports."
    monkeypatch.setattr(module + "PORTION_SESSIONS", 3)
    monkeypatch.setattr(module + "PORTION_MESSAGES", 4)
    expected: dict[str, list[Any]] = {}
    for number in range(11):
        session_id = f"s{number}"
        await db.create_session(session_id, "cli")
        expected[session_id] = [f"{session_id} {text}" for text in range(number % 6)]
        await db.append_messages_batch(session_id, [user(text) for text in expected[session_id]])
        clock.advance(number % 2)  # starts tie
    for exported in (await db.export_all(), await streamed(db)):
        assert len(exported) == 11
        found = {session["id"]: contents(session["messages"]) for session in exported}
        assert found == expected


async def test_wrong_counters_do_not_make_portions_larger(
    db: Any, raw: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hermes_orm.repositories.portability.exports.PORTION_MESSAGES", 200)
    for number in range(60):
        await db.create_session(f"s{number}", "cli")
        await db.append_messages_batch(f"s{number}", [user("hi") for _ in range(50)])
    await raw.execute("UPDATE sessions SET message_count = 0")
    export, lists = ExportRepository.export_sessions, ExportRepository.list_after
    held: list[int] = []
    listed: list[int] = []

    def watched_export(self: Any, ids: Any, limit: int) -> Any:
        sessions = export(self, ids, limit)
        held.append(sum(len(session["messages"]) for session in sessions))
        return sessions

    def watched_list(self: Any, *arguments: Any) -> Any:
        listed.append(len(found := lists(self, *arguments)))
        return found

    monkeypatch.setattr(ExportRepository, "export_sessions", watched_export)
    monkeypatch.setattr(ExportRepository, "list_after", watched_list)
    assert len(await streamed(db)) == 60
    assert (sum(held), max(held)) == (3000, 150)
    assert listed == [60, 0]


async def test_many_messages_of_one_session(db: Any) -> None:
    await db.create_session("s", "cli")
    await db.append_messages_batch("s", [user(str(number)) for number in range(2500)])
    exported = await db.export_session("s")
    assert contents(exported["messages"]) == [str(number) for number in range(2500)]
    assert (await db.export_all())[0]["messages"] == exported["messages"]


async def test_sessions_that_come_and_go_meanwhile(db: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("hermes_orm.repositories.portability.exports.PORTION_SESSIONS", 2)
    for number in range(6):
        await db.create_session(f"s{number}", "cli")
    seen = []
    async for session in db.iter_export():
        seen.append(session["id"])
        if len(seen) == 1:
            await db.delete_session("s3")
            await db.append_message("s5", "user", "active again")
            await db.create_session("new", "cli")
    assert seen == ["s0", "s1", "s2", "s4", "s5", "new"]


async def test_messages_are_in_the_order_of_their_ids(db: Any) -> None:
    """Field report Q1."""
    await db.create_session("s", "cli")
    await db.append_messages_batch(
        "s", [assistant("call", "c", timestamp=1002), tool("result", "c", timestamp=1001)]
    )
    assert contents((await db.export_session("s"))["messages"]) == ["call", "result"]
