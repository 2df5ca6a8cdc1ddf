"""Reading rows of a session, in pages and whole: messages.md sections 5 and 19."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.contract.turns import contents, tool, user


@pytest.fixture
async def ids(db: Any, session: str) -> list[int]:
    """Ids of the messages m0 to m5."""
    return [await db.append_message(session, "user", f"m{number}") for number in range(6)]


PAGES: list[tuple[dict[str, Any], str]] = [
    ({}, "012345"),
    ({"limit": 2}, "01"),
    ({"limit": -1}, "012345"),
    ({"limit": 0}, ""),
    ({"limit": "2", "offset": "1"}, "12"),
    ({"limit": 10**30, "offset": 4}, "45"),
    ({"offset": 4}, "45"),
    ({"offset": -4}, "012345"),
    ({"offset": 100}, ""),
    ({"offset": 10**30}, ""),
    ({"latest": True}, "012345"),
    ({"latest": True, "limit": 4}, "2345"),
    ({"latest": True, "limit": 4, "offset": 4}, "01"),
    ({"latest": True, "limit": 2, "offset": 1}, "34"),
    ({"latest": True, "offset": 100}, ""),
    ({"latest": True, "offset": 5}, "0"),
    ({"after_id": None, "latest": True}, "012345"),
    ({"after_id": 0}, "012345"),
    ({"after_id": -(10**30)}, "012345"),
    ({"after_id": 10**30}, ""),
    ({"after_id": 1}, "2345"),
    ({"after_id": 1, "limit": 2}, "23"),
    ({"after_id": 1, "limit": 2, "offset": 0}, "23"),
]


async def test_pages(db: Any, session: str, ids: list[int]) -> None:
    for options, read in PAGES:
        if options.get("after_id") == 1:
            options = options | {"after_id": ids[1]}
        found = contents(await db.get_messages(session, **options))
        assert found == [f"m{number}" for number in read], options


@pytest.mark.parametrize("other", [{"latest": True}, {"offset": 1}, {"offset": "2"}])
async def test_after_id_excludes_other_paging_before_anything_is_opened(
    tmp_path: Any, other: dict[str, Any]
) -> None:
    from hermes_orm import SessionDB

    async with SessionDB(tmp_path / "absent" / "state.db") as db:
        with pytest.raises(ValueError, match="after_id is incompatible"):
            await db.get_messages("s", after_id=0, **other)
    assert not list(tmp_path.glob("absent*"))


@pytest.mark.parametrize("session_id", ["nope", "", None, "s\x00", "\ud800"])
async def test_unknown_sessions_are_empty(db: Any, ids: list[int], session_id: Any) -> None:
    assert await db.get_messages(session_id) == []
    assert await db.get_messages_as_conversation(session_id) == []
    assert await db.get_messages_as_conversation(session_id, include_ancestors=True) == []


async def test_inactive_rows_are_read_on_request(
    db: Any, raw: Any, session: str, ids: list[int]
) -> None:
    await raw.execute("UPDATE messages SET active = 0, compacted = 1 WHERE id = ?", ids[1])
    await raw.execute("UPDATE messages SET active = 0 WHERE id = ?", ids[4])
    assert contents(await db.get_messages(session)) == ["m0", "m2", "m3", "m5"]
    assert contents(await db.get_messages(session, latest=True, limit=2)) == ["m3", "m5"]
    rows = await db.get_messages(session, include_inactive=True)
    assert [(row["active"], row["compacted"]) for row in rows[:2]] == [(1, 0), (0, 1)]
    assert [row["id"] for row in rows] == ids
    assert len(await db.get_messages_as_conversation(session)) == 4
    assert len(await db.get_messages_as_conversation(session, include_inactive=True)) == 6


async def test_stored_text_of_other_programs_is_read(db: Any, raw: Any, session: str) -> None:
    await db.append_message(session, "assistant", "x")
    await raw.execute(
        "UPDATE messages SET tool_calls = '{bad', reasoning_details = '{bad', observed = NULL, "
        "display_metadata = ?",
        '"{\\"a\\": 1}"',
    )
    [row] = await db.get_messages(session)
    assert (row["tool_calls"], row["display_metadata"], row["observed"]) == ([], {"a": 1}, 0)
    assert row["reasoning_details"] == "{bad"
    [message] = await db.get_messages_as_conversation(session)
    assert (message["tool_calls"], message["reasoning_details"]) == ([], None)


# Long transcripts are read in steps, which nobody sees


@pytest.fixture
async def long(db: Any, session: str) -> dict[str, list[str]]:
    """Contents of 3,300 messages in the session and, twice as many, its child `c`, in turns."""
    await db.create_session("c", "cli", parent_session_id=session)
    texts: dict[str, list[str]] = {session: [], "c": []}
    for start in range(0, 3300, 550):
        session_id = session if start % 1650 == 0 else "c"
        part = [str(number) for number in range(start, start + 550)]
        await db.append_messages_batch(session_id, [user(text) for text in part])
        texts[session_id] += part
    return texts


@pytest.mark.parametrize(
    ("options", "first", "last"),
    [
        ({}, 0, 2200),
        ({"limit": 2001}, 0, 2001),
        ({"limit": 2100, "offset": 40}, 40, 2140),
        ({"latest": True}, 0, 2200),
        ({"latest": True, "limit": 2100, "offset": 50}, 50, 2150),
        ({"latest": True, "limit": 2000}, 200, 2200),
    ],
)
async def test_steps_join_without_a_seam(
    db: Any, long: dict[str, list[str]], options: Any, first: int, last: int
) -> None:
    assert contents(await db.get_messages("c", **options)) == long["c"][first:last]


async def test_steps_over_several_sessions(db: Any, long: dict[str, list[str]]) -> None:
    rows = await db.get_messages_as_conversation("c", include_ancestors=True, include_row_ids=True)
    assert contents(rows) == [str(number) for number in range(3300)]
    ids = [row["_row_id"] for row in rows]
    assert ids == sorted(set(ids))


async def test_a_long_read_sees_one_moment(
    db: Any, session: str, long: dict[str, list[str]], open_store: Callable[..., Any]
) -> None:
    writer = open_store()

    async def write() -> None:
        for number in range(30):
            await writer.append_messages_batch(session, [tool(f"w{number}", "1"), tool("w", "2")])

    async def read() -> None:
        for _ in range(5):
            rows = await db.get_messages_as_conversation("c", include_ancestors=True)
            written = [text for text in contents(rows) if text[0] == "w"]
            assert len(written) % 2 == 0
            assert written[::2] == [f"w{number}" for number in range(len(written) // 2)]

    await asyncio.gather(write(), read())


async def test_connection_is_clean_after_a_long_read_was_cancelled(
    db: Any, session: str, long: dict[str, list[str]]
) -> None:
    for milliseconds in range(0, 60, 3):
        reading = asyncio.create_task(db.get_messages("c"))
        await asyncio.sleep(milliseconds / 1000)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        row_id = await db.append_message(session, "user", "x")
        assert (await db.get_messages(session, latest=True, limit=1))[0]["id"] == row_id
