"""Clearing and replacing transcripts: messages.md sections 3 and 19, examples 18 to 20, 22, 24."""

from typing import Any

import pytest

from hermes_orm.errors import CompressionSessionClosedError, UnknownSessionError
from tests.contract.test_messages_lookups import archive
from tests.contract.test_messages_undo import counters, live
from tests.contract.turns import assistant, contents, user


async def states(db: Any, session: str) -> dict[str, tuple[int, int]]:
    rows = await db.get_messages(session, include_inactive=True)
    return {row["content"]: (row["active"], row["compacted"]) for row in rows}


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({}, {}),
        ({"active_only": True}, {"m0": (0, 1), "m1": (0, 1), "undo": (0, 0)}),
        (
            {"archive_dropped": True},
            {"m0": (0, 1), "m1": (0, 1), "undo": (0, 0), "S": (0, 0)},
        ),
    ],
)
async def test_what_replacing_keeps(
    db: Any, raw: Any, session: str, options: Any, kept: dict[str, tuple[int, int]]
) -> None:
    await db.append_messages_batch(session, [user("m0"), user("m1"), user("S"), user("undo")])
    rows = await db.get_messages(session)
    await archive(raw, rows[0]["id"], rows[1]["id"])
    await db.rewind_to_message(session, rows[3]["id"])
    assert await db.replace_messages(session, [assistant("N", "1", "2")], **options) is None
    assert await states(db, session) == kept | {"N": (1, 0)}
    assert await counters(db, session) == (1, 2, 1)
    await db.replace_messages(session, [], **options)
    assert await live(db, session) == []
    assert await counters(db, session) == (0, 0, 1)


async def test_rows_survive_being_replaced_by_themselves(db: Any, session: str) -> None:
    await db.append_messages_batch(
        session,
        [
            user([{"type": "text", "text": "é"}], platform_message_id="p", observed=1),
            assistant("a\0", "1", reasoning_details=[{"a": 1}], api_content="\x01json:"),
            user("u", display_kind="k", display_metadata={"a": "\ud800"}, token_count=2**40),
        ],
    )
    before = await db.get_messages(session)
    await db.replace_messages(session, before)
    after = await db.get_messages(session)
    assert [row | {"id": 0} for row in after] == [row | {"id": 0} for row in before]
    assert {row["id"] for row in after}.isdisjoint(row["id"] for row in before)


async def test_failed_replace_changes_nothing(db: Any, session: str) -> None:
    await db.append_message(session, "user", "keep")
    with pytest.raises(TypeError, match=r"messages\[1\]"):
        await db.replace_messages(session, [user("x"), "y"])
    with pytest.raises(UnknownSessionError, match="'nope'"):
        await db.replace_messages("nope", [user("x")])
    with pytest.raises(UnknownSessionError):
        await db.replace_messages("n\0", [user("x")])
    for nobody in ("nope", "n\0"):
        assert await db.replace_messages(nobody, []) is None
        assert await db.clear_messages(nobody) is None
    await db.end_session(session, "compression")
    for messages in ([], [user("x")]):
        with pytest.raises(CompressionSessionClosedError) as caught:
            await db.replace_messages(session, messages, archive_dropped=True)
        assert caught.value.session_id == session
    assert await live(db, session) == ["keep"]
    assert await counters(db, session) == (1, 0, 0)


async def test_odd_roles_are_replaced_too(db: Any, session: str) -> None:
    await db.replace_messages(session, ({"role": role, "content": "x"} for role in (None, "user")))
    assert [row["role"] for row in await db.get_messages(session)] == ["unknown", "user"]


async def test_clear(db: Any, raw: Any, session: str) -> None:
    await db.create_session("other", "cli")
    await db.append_message("other", "user", "stays")
    await db.append_messages_batch(session, [user("a"), assistant("b", "1"), user("c")])
    rows = await db.get_messages(session)
    await archive(raw, rows[0]["id"])
    await db.rewind_to_message(session, rows[2]["id"])
    await db.end_session(session, "compression")
    assert await db.clear_messages(session) is None
    assert await db.message_count() == 1
    assert await counters(db, session) == (0, 0, 1)


async def test_search_and_recency_follow(db: Any, raw: Any, clock: Any, session: str) -> None:
    started = clock()

    async def recency() -> float:
        [(time,)] = await raw.fetch("SELECT last_active FROM hermes_session_recency")
        return float(time - started)

    async def found(word: str) -> int:
        return len(await db.search_messages(word))

    await db.append_messages_batch(session, [user("apple", timestamp=started + 9)] * 3)
    await db.replace_messages(session, [user("pear", timestamp=started + 5)] * 2)
    assert (await found("apple"), await found("pear"), await recency()) == (0, 2, 5.0)
    replaced = [user("plum", timestamp=started + 1)]
    await db.replace_messages(session, replaced, archive_dropped=True)
    assert (await found("pear"), await found("plum"), await recency()) == (0, 1, 5.0)
    await db.rewind_to_message(session, await db.latest_user_message_row_id(session))
    assert (await found("plum"), await recency()) == (0, 5.0)
    await db.restore_rewound(session, 0)
    assert (await found("pear"), await found("plum")) == (2, 1)
    await db.clear_messages(session)
    assert (await found("plum"), await recency()) == (0, 0.0)
    if raw.is_postgres:
        assert await raw.fetch("SELECT * FROM message_search") == []


async def test_api_content_of_the_latest_user_message(db: Any, session: str) -> None:
    await db.append_messages_batch(session, [user("old"), user("new"), assistant("a")])

    async def notes() -> list[str | None]:
        return [row["api_content"] for row in await db.get_messages(session)]

    for content, expected in [("old", 0), (" new ", 0), (None, 0), (["new"], 0), ("new", 1)]:
        assert await db.set_latest_user_api_content(session, content, "X\0") == expected
    assert await notes() == [None, "X\0", None]
    assert await db.set_latest_user_api_content(session, "new", None) == 1
    assert await notes() == [None] * 3
    with pytest.raises(TypeError, match="api_content"):
        await db.set_latest_user_api_content(session, "new", 5)
    await db.rewind_to_message(session, await db.latest_user_message_row_id(session))
    assert await db.set_latest_user_api_content(session, "new", "X") == 0
    assert await db.set_latest_user_api_content(session, "old", "") == 1
    assert await notes() == [""]
    for nobody in ("nope", None):
        assert await db.set_latest_user_api_content(nobody, "old", "X") == 0
    odd: list[Any] = [None, [{"a": "é"}], "x\ud800", "\0"]
    for content in odd:
        await db.append_message(session, "user", content)
        assert await db.set_latest_user_api_content(session, content, "\ud800") == 1
        assert (await notes())[-1] == "\ufffd"
    assert contents(await db.get_messages(session))[-1] == "\0"
