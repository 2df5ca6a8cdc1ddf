"""Resuming sessions: messages.md sections 7 and 19, examples 40 to 42."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hermes_orm
from hermes_orm.errors import SessionExportTooLargeError, SessionResumeTooLargeError
from tests.contract.conftest import Sent
from tests.contract.stories import Story
from tests.contract.turns import assistant, contents, user


@pytest.fixture
async def family(db: Any, story: Story) -> None:
    """Root r, compressed into c; branch b of c, compressed into bc."""
    await story.new("r", 1)
    await db.append_messages_batch("r", [user("u1"), assistant("a1"), user("dup")])
    await story.end("r", "compression", 2)
    await story.new("c", 2, parent="r")
    await db.append_messages_batch(
        "c", [user("sum"), user("dup"), assistant("c-a"), user("c-u"), user("c-u2")]
    )
    await story.new("b", 3, parent="c", config={"_branched_from": "c"})
    await db.append_message("b", "user", "b-u")
    await story.end("b", "compression", 4)
    await story.new("bc", 4, parent="b", config={"_branched_from": "c"})
    await db.append_message("bc", "assistant", "bc-a")


async def shown(db: Any, session_id: str) -> list[str]:
    _, display = await db.get_resume_conversations(session_id)
    return contents(display)


@pytest.mark.usefixtures("family")
async def test_resumed_conversations(db: Any) -> None:
    model, display = await db.get_resume_conversations("c")
    assert contents(model) == ["sum\n\ndup", "c-a", "c-u\n\nc-u2"]
    assert contents(display) == ["u1", "a1", "dup", "sum", "c-a", "c-u", "c-u2"]
    assert all("_row_id" in message for message in model + display)
    own = await db.get_messages_as_conversation("c", repair_alternation=True, include_row_ids=True)
    assert model == own
    assert display == await db.get_messages_as_conversation(
        "c", include_ancestors=True, include_row_ids=True
    )
    prefix = await db.get_ancestor_display_prefix("c")
    assert contents(prefix) == ["u1", "a1", "dup"]
    assert not any("_row_id" in message for message in prefix)
    assert await db.get_resume_message_count("c") == 8
    assert await shown(db, "r") == ["u1", "a1", "dup"]
    assert await db.get_resume_message_count("r") == 3
    assert await db.get_ancestor_display_prefix("r") == []


@pytest.mark.usefixtures("family")
async def test_a_branch_owns_its_transcript(db: Any) -> None:
    assert await shown(db, "b") == ["b-u"]
    assert await db.get_ancestor_display_prefix("b") == []
    assert await db.get_resume_message_count("b") == 1
    assert await db.assert_resume_safe("b", 2) == 1
    assert await shown(db, "bc") == ["b-u", "bc-a"]
    assert contents(await db.get_ancestor_display_prefix("bc")) == ["b-u"]


@pytest.mark.usefixtures("family")
async def test_only_live_rows_are_resumed(db: Any) -> None:
    await db.rewind_to_message("r", await db.latest_user_message_row_id("r"))
    await db.rewind_to_message("c", await db.latest_user_message_row_id("c"))
    assert await shown(db, "c") == ["u1", "a1", "sum", "dup", "c-a", "c-u"]
    assert await db.get_resume_message_count("c") == 6
    assert await db.assert_export_safe("c") == 4


@pytest.mark.usefixtures("family")
async def test_limits(db: Any) -> None:  # P1
    with pytest.raises(SessionResumeTooLargeError) as resume:
        await db.assert_resume_safe("c", 3)
    assert (resume.value.message_count, resume.value.limit) == (4, 3)
    with pytest.raises(SessionExportTooLargeError) as export:
        await db.assert_export_safe("c", 3)
    assert (export.value.session_id, export.value.message_count, export.value.limit) == ("c", 4, 3)
    for limit in (8, 0, None, "9", 2**70):
        assert await db.assert_resume_safe("c", limit) == 8
        assert await db.assert_export_safe("c", limit) == 5
    for check in (db.assert_resume_safe, db.assert_export_safe):
        with pytest.raises(ValueError, match="max_messages must be non-negative"):
            await check("c", -1)


@pytest.mark.usefixtures("family")
@pytest.mark.parametrize(
    ("setting", "limit"),
    [("2", 2), ("0", 0), ("-3", 20_000), ("abc", 20_000), ("null", 20_000), ("'3'", 3)],
)
async def test_configured_limits(db: Any, hermes_home: Path, setting: str, limit: int) -> None:
    hermes_home.mkdir(exist_ok=True)
    (hermes_home / "config.yaml").write_text(
        f"sessions:\n  max_resume_messages: {setting}\n  max_export_messages: {setting}\n"
    )
    checks: dict[type[Any], Any] = {
        SessionResumeTooLargeError: (db.get_resume_conversations, db.assert_resume_safe),
        SessionExportTooLargeError: (db.assert_export_safe,),
    }
    for error, operations in checks.items():
        for operation in operations:
            if limit in (2, 3):
                with pytest.raises(error) as caught:
                    await operation("c")
                assert (caught.value.message_count, caught.value.limit) == (limit + 1, limit)
            else:
                assert await operation("c")


@pytest.mark.usefixtures("family")
async def test_hosts_can_replace_the_limit(db: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def one() -> int:
        return 1

    monkeypatch.setattr(hermes_orm, "resolved_max_resume_messages", one)
    with pytest.raises(SessionResumeTooLargeError):
        await db.get_resume_conversations("c")
    monkeypatch.setattr(hermes_orm, "resolved_max_export_messages", one)
    with pytest.raises(SessionExportTooLargeError):
        await db.assert_export_safe("c")


async def test_nothing_to_resume(db: Any) -> None:
    for nobody in ("nope", "", "n\0", None):
        assert await db.get_resume_conversations(nobody) == ([], [])
        assert await db.get_ancestor_display_prefix(nobody) == []
        assert await db.get_resume_message_count(nobody) == 0
        assert await db.assert_resume_safe(nobody) == 0
        assert await db.assert_export_safe(nobody) == 0


async def test_deep_chain_and_ring(db: Any, story: Story, raw: Any) -> None:
    sessions = {f"s{number}": f"s{number - 1}" if number else None for number in range(130)}
    row = {"source": "cli", "started_at": 1.0}
    await story.insert(
        "sessions",
        *({"id": name, "parent_session_id": parent, **row} for name, parent in sessions.items()),
    )
    message = {"role": "user", "timestamp": 1.0}
    await story.insert(
        "messages",
        *({"session_id": name, "content": name[1:], **message} for name in sessions),
    )
    assert await shown(db, "s129") == [str(number) for number in range(130)]
    await raw.execute("UPDATE sessions SET parent_session_id = 's129' WHERE id = 's0'")
    assert await shown(db, "s128") == [str(number) for number in range(130)]
    assert await db.get_resume_message_count("s128") == 130
    assert len(await db.get_ancestor_display_prefix("s128")) == 129


async def test_long_transcript_of_two_sessions(
    db: Any, story: Story, open_store: Callable[..., Any]
) -> None:
    await story.new("p")
    await story.new("k", parent="p")
    for session_id in ("p", "k", "p", "k"):
        batch = [user(f"{session_id}{number}") for number in range(600)]
        await db.append_messages_batch(session_id, batch)
    model, display = await db.get_resume_conversations("k")
    assert len(model) == 1
    assert model[0]["content"].count("\n\n") == 1199
    ids = [message["_row_id"] for message in display]
    assert ids == sorted(ids)
    assert len(await db.get_ancestor_display_prefix("k")) == 600


@pytest.mark.usefixtures("family")
async def test_resuming_is_one_statement(db: Any, sent: Sent) -> None:
    sent()
    for operation in (
        db.get_resume_conversations("c"),
        db.get_ancestor_display_prefix("c"),
        db.get_resume_message_count("c"),
        db.assert_resume_safe("c"),
        db.assert_export_safe("c"),
    ):
        await operation
        assert sent() == 1
