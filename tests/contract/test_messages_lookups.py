"""Facts about transcripts: messages.md sections 1.5, 5 and 19, examples 26, 27 and 30."""

from typing import Any

import pytest

from tests.contract.conftest import Sent
from tests.contract.turns import assistant, tool, user


async def undo(raw: Any, *row_ids: int) -> None:
    for row_id in row_ids:
        await raw.execute("UPDATE messages SET active = 0 WHERE id = ?", row_id)


async def archive(raw: Any, *row_ids: int) -> None:
    for row_id in row_ids:
        await raw.execute("UPDATE messages SET active = 0, compacted = 1 WHERE id = ?", row_id)


async def added(db: Any, session: str, *messages: dict[str, Any]) -> list[int]:
    """Append messages; return the ids of all rows of the session."""
    await db.append_messages_batch(session, messages)
    return [row["id"] for row in await db.get_messages(session, include_inactive=True)]


async def test_latest_row_with_text(db: Any, raw: Any, session: str) -> None:
    x, empty, _, none = await added(db, session, *map(user, ["x", "", "   ", None]))
    assert await db.latest_message_row_id(session) == x
    assert await db.latest_user_message_row_id(session) == x
    assert await db.latest_message_row_id(session, require_text=False) == none
    assert await db.latest_message_row_id(session, offset=2, require_text=False) == empty
    assert await db.latest_message_row_id(session, offset=1) is None
    for role, offset in [("tool", 0), ("user", -1), ("user", 2**70), ("assistant", 0)]:
        assert await db.latest_message_row_id(session, role=role, offset=offset) is None
    texts: list[Any] = [[], "\n", "\0", {"a": 1}, "a\0b"]
    for content in texts:
        *_, latest = await added(db, session, user(content))
        assert await db.latest_message_row_id(session) == latest
    await undo(raw, latest)
    assert await db.latest_message_row_id(session) == latest - 1
    for nobody in ("", "nope", "\ud800", None):
        assert await db.latest_message_row_id(nobody) is None


async def test_states_of_rows(db: Any, raw: Any, session: str) -> None:
    ids = await added(
        db, session, *(user("x", platform_message_id=f"p{number}") for number in range(3))
    )
    assert not await db.has_archived_messages(session)
    assert await db.get_active_message_watermark(session) == ids[2]
    await archive(raw, ids[1])
    await undo(raw, ids[2])
    assert [await db.get_message_role(session, str(row_id)) for row_id in ids] == [
        "user",
        None,
        None,
    ]
    assert await db.has_archived_messages(session) is True
    assert await db.get_active_message_watermark(session) == ids[0]
    known = [await db.has_platform_message_id(session, f"p{number}") for number in range(4)]
    assert known == [True, True, False, False]
    assert await db.has_platform_message_id(session, None) is False
    states = [await db._get_message_storage_state(row_id) for row_id in ids]
    assert states == [
        {"session_id": session, "active": active, "compacted": compacted}
        for active, compacted in [(1, 0), (0, 1), (0, 0)]
    ]


async def test_scalars_of_odd_types(db: Any, session: str) -> None:
    (row_id,) = await added(db, session, user("x", platform_message_id="p\ud800"))
    assert await db.has_platform_message_id(session, "p\ud800")
    await db.append_message(session, "user", "x", platform_message_id=7)
    assert await db.has_platform_message_id(session, 7)
    with pytest.raises(ValueError, match="row_id must be a whole number"):
        await db.get_message_role(session, "garbage")
    assert await db.get_message_role(session, 2**70) is None
    assert await db.get_message_role("other", row_id) is None
    for nothing in (0, None, "", "garbage", 2**70, row_id + 9):
        assert await db._get_message_storage_state(nothing) is None


async def test_nobody_has_nothing(db: Any) -> None:
    for nobody in ("", "nope", "n\0", None):
        assert await db.get_message_role(nobody, 1) is None
        assert await db.has_platform_message_id(nobody, "p") is False
        assert await db.has_archived_messages(nobody) is False
        assert await db.get_active_message_watermark(nobody) == 0
        assert await db.list_recent_user_messages(nobody) == []


async def test_recent_user_messages(db: Any, raw: Any, session: str) -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    ids = await added(
        db,
        session,
        user("a\n\n b"),
        assistant("no"),
        user("x" * 81, observed=True, timestamp=5),
        user([{"type": "image_url"}], display_kind=""),
        tool("no", "1"),
        user(parts),
        user("switched", display_kind="model_switch"),
    )
    recent = await db.list_recent_user_messages(session)
    assert [line["preview"] for line in recent] == [
        "one two",
        "[multimodal content]",
        "x" * 77 + "...",
        "a b",
    ]
    assert [line["id"] for line in recent] == [ids[5], ids[3], ids[2], ids[0]]
    assert recent[2] == {"id": ids[2], "timestamp": 5.0, "preview": "x" * 77 + "..."}
    await undo(raw, ids[5])
    assert await db.list_recent_user_messages(session, -1) == recent[1:]
    assert await db.list_recent_user_messages(session, "1") == recent[1:2]
    assert await db.list_recent_user_messages(session, 0) == []
    assert await db.list_recent_user_messages(session, 9, include_inactive=True) == recent


@pytest.mark.parametrize(
    ("content", "preview"),
    [
        ({"a": 1}, ""),
        (None, ""),
        ([], "[multimodal content]"),
        ("x" * 80, "x" * 80),
        ("\t \n", ""),
        (
            '[IMPORTANT: The user has invoked the "plan" skill. The full skill content is loaded '
            "below.]\nThe user has provided the following instruction alongside the skill "
            "invocation: do  it",
            "/plan — do it",
        ),
    ],
)
async def test_preview(db: Any, session: str, content: Any, preview: str) -> None:
    await db.append_message(session, "user", content)
    [line] = await db.list_recent_user_messages(session)
    assert line["preview"] == preview


async def test_every_lookup_is_one_statement(db: Any, session: str, sent: Sent) -> None:
    await db.append_message(session, "user", "x")
    sent()
    for lookup in (
        db.latest_message_row_id(session),
        db.get_message_role(session, 1),
        db.has_platform_message_id(session, "p"),
        db.has_archived_messages(session),
        db.get_active_message_watermark(session),
        db.list_recent_user_messages(session),
        db._get_message_storage_state(1),
        db.get_messages_around(session, 1),
        db.get_anchored_view(session, 1),
    ):
        await lookup
        assert sent() == 1
