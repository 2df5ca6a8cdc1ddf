"""Messages around a message: messages.md sections 5 and 19, examples 28, 29 and 63."""

from typing import Any

import pytest

from tests.contract.test_messages_lookups import archive, undo
from tests.contract.turns import contents

EMPTY = {"window": [], "messages_before": 0, "messages_after": 0}
ROLES = ("user", "assistant", "tool")


@pytest.fixture
async def ids(db: Any, session: str) -> list[int]:
    """Row ids of m0 to m11: user, assistant, tool, and so on; sessions before and after it."""
    await db.create_session("other", "cli")
    await db.append_message("other", "user", "before")
    batch = [{"role": ROLES[number % 3], "content": f"m{number}"} for number in range(12)]
    await db.append_messages_batch(session, batch)
    await db.append_message("other", "user", "after")
    return [row["id"] for row in await db.get_messages(session)]


def numbered(*numbers: int) -> list[str]:
    return [f"m{number}" for number in numbers]


async def test_window(db: Any, session: str, ids: list[int]) -> None:
    around = await db.get_messages_around(session, ids[5], window=1)
    assert contents(around["window"]) == numbered(4, 5, 6)
    assert (around["messages_before"], around["messages_after"]) == (1, 1)
    assert around["window"] == await db.get_messages(session, offset=4, limit=3)
    alone = await db.get_messages_around(session, ids[5], window=-3)
    assert contents(alone["window"]) == ["m5"]
    at_end = await db.get_messages_around(session, str(ids[11]), window="2")
    assert contents(at_end["window"]) == numbered(9, 10, 11)
    assert (at_end["messages_before"], at_end["messages_after"]) == (2, 0)
    everything = await db.get_messages_around(session, ids[0], window=2**70)
    assert len(everything["window"]) == 12


async def test_no_anchor_no_view(db: Any, session: str, ids: list[int]) -> None:
    bookends: dict[str, Any] = {"bookend_start": [], "bookend_end": []}
    for owner, anchor in [
        (session, ids[0] - 1),
        ("other", ids[3]),
        (session, 2**70),
        (session, None),
        ("nope", ids[3]),
        (None, ids[3]),
    ]:
        assert await db.get_messages_around(owner, anchor) == EMPTY
        assert await db.get_anchored_view(owner, anchor) == EMPTY | bookends


async def test_anchored_view(db: Any, session: str, ids: list[int]) -> None:
    view = await db.get_anchored_view(session, ids[5], window=1)
    assert contents(view["window"]) == numbered(4, 5, 6)
    assert contents(view["bookend_start"]) == numbered(0, 1, 3)
    assert contents(view["bookend_end"]) == numbered(7, 9, 10)
    assert list(view["bookend_start"][0]) == list((await db.get_messages(session))[0])


@pytest.mark.parametrize(
    ("keep_roles", "window", "start", "end"),
    [
        ((), [5], [], []),
        (["tool"], [5], [2], [8, 11]),
        (None, [4, 5, 6], [0, 1, 2], [9, 10, 11]),
        (["assistant", "\ud800"], [4, 5], [1], [7, 10]),
    ],
)
async def test_kept_roles(
    db: Any,
    session: str,
    ids: list[int],
    keep_roles: Any,
    window: list[int],
    start: list[int],
    end: list[int],
) -> None:
    view = await db.get_anchored_view(session, ids[5], 1, 3, keep_roles)
    assert (view["messages_before"], view["messages_after"]) == (1, 1)
    assert contents(view["window"]) == numbered(*window)
    assert contents(view["bookend_start"]) == numbered(*start)
    assert contents(view["bookend_end"]) == numbered(*end)


async def test_bookends_say_something(db: Any, session: str) -> None:
    said: list[Any] = [[{"type": "text", "text": "mm"}], [], {}, "", None, " ", "\0", "anchor"]
    await db.append_messages_batch(session, [{"role": "user", "content": text} for text in said])
    anchor = await db.latest_message_row_id(session)
    view = await db.get_anchored_view(session, anchor, window=0, bookend=9)
    assert contents(view["bookend_start"]) == [said[0], " ", "\0"]
    assert contents(view["window"]) == ["anchor"]
    assert (await db.get_anchored_view(session, anchor, 0, -1))["bookend_start"] == []


async def test_undone_rows_are_left_out(db: Any, raw: Any, session: str, ids: list[int]) -> None:
    await undo(raw, *ids[4:11])
    around = await db.get_messages_around(session, ids[3], window=2)
    assert contents(around["window"]) == numbered(1, 2, 3, 11)
    assert (around["messages_before"], around["messages_after"]) == (2, 1)
    around = await db.get_messages_around(session, ids[4], window=1)
    assert contents(around["window"]) == numbered(3, 4, 11)
    view = await db.get_anchored_view(session, ids[0], window=1, bookend=9, keep_roles=None)
    assert contents(view["window"] + view["bookend_end"]) == numbered(0, 1, 2, 3, 11)


async def test_archived_rows_stay(db: Any, raw: Any, session: str, ids: list[int]) -> None:
    await archive(raw, *ids[:11])
    around = await db.get_messages_around(session, ids[3], window=2)
    assert contents(around["window"]) == numbered(1, 2, 3, 4, 5)
    view = await db.get_anchored_view(session, ids[11], window=0)
    assert contents(view["bookend_start"]) == numbered(0, 1, 3)
