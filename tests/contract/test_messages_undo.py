"""Undoing turns and bringing them back: messages.md sections 8 and 19, examples 43, 44 and 65."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.contract.test_messages_lookups import archive
from tests.contract.turns import assistant, contents, user


@pytest.fixture
async def ids(db: Any, session: str) -> list[int]:
    """Row ids of m0 to m5, in turns of the user and the assistant, which calls a tool each time."""
    turns = [(user, ()), (assistant, ("c",))] * 3
    batch = [make(f"m{n}", *calls) for n, (make, calls) in enumerate(turns)]
    await db.append_messages_batch(session, batch)
    return [row["id"] for row in await db.get_messages(session)]


async def live(db: Any, session: str) -> list[str]:
    return contents(await db.get_messages(session))


async def counters(db: Any, session: str) -> tuple[int, int, int]:
    row = await db.get_session(session)
    return row["message_count"], row["tool_call_count"], row["rewind_count"]


async def test_rewind(db: Any, session: str, ids: list[int]) -> None:
    before = await db.get_messages(session)
    result = await db.rewind_to_message(session, ids[4])
    assert result == {
        "rewound_count": 2,
        "target_message": before[4],
        "new_head_id": ids[3],
    }
    assert list(result["target_message"]) == list(before[4])
    assert await live(db, session) == ["m0", "m1", "m2", "m3"]
    assert await counters(db, session) == (4, 2, 1)
    again = await db.rewind_to_message(session, str(ids[4]))
    assert (again["rewound_count"], again["target_message"]["active"]) == (0, 0)
    assert await counters(db, session) == (4, 2, 2)
    everything = await db.rewind_to_message(session, ids[0])
    assert (everything["rewound_count"], everything["new_head_id"]) == (4, None)
    assert await counters(db, session) == (0, 0, 3)


async def test_rewind_needs_a_message_of_the_user(db: Any, session: str, ids: list[int]) -> None:
    await db.create_session("other", "cli")
    with pytest.raises(ValueError, match="must be a 'user' message"):
        await db.rewind_to_message(session, ids[1])
    for owner, row_id in [
        (session, ids[5] + 1),
        (session, 2**70),
        (session, "x"),
        ("other", ids[0]),
        ("nope", ids[0]),
    ]:
        with pytest.raises(ValueError, match="not found in session"):
            await db.rewind_to_message(owner, row_id)
    assert await counters(db, session) == (6, 3, 0)


async def test_target_shows_stored_json(db: Any, session: str) -> None:
    row_id = await db.append_message(
        session, "user", [{"type": "text"}], display_metadata={"a": 1}, tool_calls=[{"id": "é"}]
    )
    target = (await db.rewind_to_message(session, row_id))["target_message"]
    assert target["content"] == [{"type": "text"}]
    assert target["display_metadata"] == '{"a": 1}'
    assert target["tool_calls"] == '[{"id": "é"}]'


async def test_restore(db: Any, raw: Any, session: str, ids: list[int]) -> None:
    await db.rewind_to_message(session, ids[2])
    assert await db.restore_rewound(session, ids[4]) == 2
    assert await live(db, session) == ["m0", "m1", "m4", "m5"]
    assert await counters(db, session) == (4, 2, 1)
    assert await db.restore_rewound(session, -(2**70)) == 2
    assert await live(db, session) == [f"m{n}" for n in range(6)]
    assert await db.restore_rewound(session, 0) == 0
    assert await db.restore_rewound("nope", 0) == 0
    assert await counters(db, session) == (6, 3, 1)


async def test_archives_stay_archived(db: Any, raw: Any, session: str, ids: list[int]) -> None:
    await archive(raw, *ids[:4])
    await db.rewind_to_message(session, ids[0])
    assert await db.restore_rewound(session, 0) == 2
    assert await live(db, session) == ["m4", "m5"]
    assert await counters(db, session) == (2, 1, 1)


async def test_counters_of_other_programs_are_corrected(
    db: Any, raw: Any, session: str, ids: list[int]
) -> None:
    await raw.execute("UPDATE messages SET tool_calls = '{bad' WHERE id = ?", ids[1])
    await raw.execute("UPDATE sessions SET message_count = 99, tool_call_count = 99")
    await db.restore_rewound(session, 0)
    assert await counters(db, session) == (6, 2, 0)


async def test_no_turn_comes_back_twice(db: Any, raw: Any, session: str) -> None:
    texts = [None, "t1", "t2", ["t3"]]
    await db.append_messages_batch(session, [user(text) for text in texts])
    rows = await db.get_messages(session)
    await db.replace_messages(session, rows[:2], active_only=True, archive_dropped=True)
    assert await db.restore_rewound(session, rows[0]["id"]) == 2
    assert await live(db, session) == ["t2", ["t3"], None, "t1"]
    assert await counters(db, session) == (4, 0, 0)


async def test_a_copy_of_an_undone_message_counts_as_it(
    db: Any, raw: Any, session: str, ids: list[int]
) -> None:
    await db.rewind_to_message(session, ids[4])
    await db.append_message(session, "user", "m4, edited")
    await raw.execute(
        "UPDATE messages SET message_uid = "
        "(SELECT m.message_uid FROM messages m WHERE m.id = ?) WHERE content = 'm4, edited'",
        ids[4],
    )
    assert await db.restore_rewound(session, ids[4]) == 1
    assert await live(db, session) == ["m0", "m1", "m2", "m3", "m5", "m4, edited"]


async def test_undo_among_appends(
    db: Any, session: str, ids: list[int], open_store: Callable[..., Any]
) -> None:
    other = open_store()

    async def undo() -> None:
        for _ in range(8):
            await db.rewind_to_message(session, ids[4])
            await db.restore_rewound(session, ids[4])

    async def append() -> None:
        for _ in range(16):
            await other.append_message(session, "assistant", "x", tool_calls=[{"id": "c"}])

    await asyncio.gather(undo(), append())
    await db.restore_rewound(session, 0)
    assert len(await db.get_messages(session)) == 22
    assert await counters(db, session) == (22, 19, 8)


async def test_undo_of_an_ended_session(db: Any, session: str, ids: list[int]) -> None:
    await db.end_session(session, "compression")
    assert (await db.rewind_to_message(session, ids[4]))["rewound_count"] == 2
    assert await db.restore_rewound(session, ids[4]) == 2
