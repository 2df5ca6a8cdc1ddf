"""Who owns a gateway's input: messages.md sections 15 and 19, examples 59 to 62."""

import json
import sqlite3
from typing import Any

import pytest

from tests.contract.conftest import Sent
from tests.contract.stories import Story
from tests.contract.test_messages_lookups import archive
from tests.contract.turns import user

KEY = "gateway_input_owner"


def owned(owner: Any, **keys: Any) -> dict[str, Any]:
    return user("same", **{"display_metadata": {KEY: owner}, "timestamp": 5, **keys})


@pytest.mark.parametrize(
    "owner",
    ["o", "telegram:p:42/é'\"\\%_1", "\ud800", "温", "<&>", "x" * 60_000],
    ids=["plain", "signs", "surrogate", "cjk", "markup", "long"],
)
async def test_owner_of_a_session(db: Any, raw: Any, session: str, owner: str) -> None:
    await db.append_messages_batch(
        session, [owned(owner), user("x", display_metadata={"a": "\ud800", KEY: "p"}), user("y")]
    )
    await raw.execute("UPDATE messages SET display_metadata = '{bad o' WHERE content = 'y'")
    assert await db.has_gateway_input_owner(session, owner) is True
    assert await db.find_gateway_input_owner(session, owner) == session
    for other in ("x", owner[:-1], owner + "x", owner.upper() + "X"):
        assert await db.has_gateway_input_owner(session, other) is False
    [(stored,)] = await raw.fetch("SELECT display_metadata FROM messages WHERE content = 'same'")
    await raw.execute(
        "UPDATE messages SET display_metadata = ? WHERE content = 'same'", json.dumps(stored)
    )
    assert await db.has_gateway_input_owner(session, owner)


async def test_nobody_owns_nothing(db: Any, session: str) -> None:
    await db.append_messages_batch(session, [owned(""), owned(5), owned(None), owned(["o"])])
    for session_id, owner in [(session, ""), (session, None), (session, 5), ("none", "o")]:
        assert await db.has_gateway_input_owner(session_id, owner) is False
        assert await db.find_gateway_input_owner(session_id, owner) is None
    for nobody in ("", None, "n\0"):
        assert await db.has_gateway_input_owner(nobody, "o") is False
        assert await db.find_gateway_input_owner(nobody, "o") is None


@pytest.fixture
async def root(story: Story) -> str:
    """root, compressed into middle, that into a reaped orphan and the live child `live`."""
    await story.new("root", 1)
    await story.end("root", "compression", 2)
    await story.new("middle", 2, parent="root")
    await story.end("middle", "compression", 3)
    await story.new("orphan", 3, parent="middle")
    await story.end("orphan", "orphaned_compression", 4)
    await story.new("live", 3, parent="middle")
    await story.new("branch", 4, parent="live", config={"_branched_from": "live"})
    await story.new("delegate", 4, parent="live", config={"_delegate_from": "live"})
    return "root"


METADATA = json.dumps({KEY: "o"})


@pytest.mark.parametrize(
    ("session_id", "columns", "expected"),
    [
        ("root", {}, "root"),
        ("middle", {"active": 0, "compacted": 1}, "middle"),
        ("live", {}, "live"),
        ("live", {"observed": None}, "live"),
        ("orphan", {}, None),
        ("branch", {}, None),
        ("delegate", {}, None),
        ("live", {"active": 0}, None),
        ("live", {"observed": 1}, None),
        ("live", {"display_metadata": METADATA.replace('"o"', '"p"')}, None),
        ("live", {"display_metadata": None}, None),
        ("live", {"role": "assistant"}, None),
    ],
)
async def test_owner_in_a_conversation(
    db: Any, story: Story, root: str, session_id: str, columns: Any, expected: str | None
) -> None:
    await story.msg(session_id, **{"display_metadata": METADATA, **columns})
    for start in (root, "middle", "live"):
        assert await db.find_gateway_input_owner(start, "o") == expected
    assert await db.has_gateway_input_owner(session_id, "o") is (
        expected is not None or session_id in ("orphan", "branch", "delegate")
    )


async def test_the_nearest_owner_is_found(db: Any, story: Story, root: str) -> None:
    for session_id in (root, "live", "middle"):
        await story.msg(session_id, display_metadata=METADATA)
    assert await db.find_gateway_input_owner(root, "o") == "live"


async def test_only_what_is_not_undone_owns(db: Any, raw: Any, session: str) -> None:
    await db.append_messages_batch(session, [owned("o1"), owned("o2"), user("x")])
    rows = await db.get_messages(session)
    for owner in ("o1", "o2"):
        assert await db.find_gateway_input_owner(session, owner) == session
    await archive(raw, rows[0]["id"])
    await db.replace_messages(session, rows[2:], archive_dropped=True)
    assert await db.has_gateway_input_owner(session, "o1")
    assert not await db.has_gateway_input_owner(session, "o2")
    await db.restore_rewound(session, 0)
    assert await db.has_gateway_input_owner(session, "o2")
    await db.rewind_to_message(session, rows[1]["id"])
    assert not await db.has_gateway_input_owner(session, "o2")


async def test_a_failed_probe_is_no_answer(db: Any, raw: Any, session: str) -> None:
    await db.append_messages_batch(session, [owned("o")])
    await raw.execute("ALTER TABLE messages RENAME COLUMN display_metadata TO gone")
    for probe in (db.has_gateway_input_owner, db.find_gateway_input_owner):
        with pytest.raises(sqlite3.Error):
            await probe(session, "o")


async def test_a_probe_is_one_statement(db: Any, session: str, sent: Sent) -> None:
    sent()
    await db.has_gateway_input_owner(session, "o")
    await db.find_gateway_input_owner(session, "o")
    assert sent() == 2
