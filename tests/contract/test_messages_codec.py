"""What is written to a message and read back: messages.md sections 2 and 19, examples 1-11."""

import logging
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.contract.turns import contents

KEYS = (
    *("id", "session_id", "role", "content", "tool_call_id", "tool_calls", "tool_name"),
    *("effect_disposition", "timestamp", "token_count", "finish_reason", "reasoning"),
    *("reasoning_content", "reasoning_details", "codex_reasoning_items", "codex_message_items"),
    *("platform_message_id", "observed", "active", "compacted", "api_content", "display_kind"),
    "display_metadata",
)


async def written(db: Any, session: str, **message: Any) -> tuple[Any, Any]:
    """Append one message; return its row and the message of the conversation."""
    row_id = await db.append_message(session, **{"role": "user", "content": "x", **message})
    row = (await db.get_messages(session, after_id=row_id - 1))[0]
    return row, (await db.get_messages_as_conversation(session))[-1]


CONTENTS: list[tuple[Any, Any]] = [
    ("", ""),
    (None, None),
    ([], []),
    ({}, {}),
    ([{"type": "text", "text": "é"}], [{"type": "text", "text": "é"}]),
    ({"a": 1}, {"a": 1}),
    ((1, 2), [1, 2]),
    (5, "5"),
    (True, "1"),
    (b"\xc3\xa9\xff", "é\ufffd"),
    ("\x00json:[1,2]", "\x00json:[1,2]"),
    ("\x01json:[1,2]", "\x01json:[1,2]"),
    ("a\x00b", "a\x00b"),
    ("x\ud800y", "x\ufffdy"),
    (["\ud800"], ["\ud800"]),
    (["\x00"], ["\x00"]),
    ({"s": {1}}, {"s": "{1}"}),
]


async def test_content_is_read_back(db: Any, session: str) -> None:
    for given, _ in CONTENTS:
        await db.append_message(session, "tool", given)
    await db.append_messages_batch(session, [{"role": "tool", "content": c} for c, _ in CONTENTS])
    expected = [read for _, read in CONTENTS] * 2
    for found in (
        contents(await db.get_messages(session)),
        contents(await db.get_messages_as_conversation(session)),
    ):
        assert found == expected
        assert list(map(type, found)) == list(map(type, expected))


async def test_plain_columns_hold_what_every_database_can_hold(db: Any, session: str) -> None:
    row, _ = await written(
        db,
        session,
        role="r\ud800",
        platform_message_id="p\ud800",
        tool_name="a\x00b",
        tool_call_id=7,
    )
    assert row["role"] == "r\ufffd"
    assert row["platform_message_id"] == "p\ufffd"
    assert row["tool_name"] == "a\ufffdb"
    assert row["tool_call_id"] == "7"


async def test_rows_have_the_documented_keys_in_order(db: Any, session: str) -> None:
    row, _ = await written(db, session, token_count="12", observed=1, api_content="sent\x00")
    assert tuple(row) == KEYS
    numbers = ("id", "token_count", "observed", "active", "compacted")
    assert [type(row[key]) for key in numbers] == [int] * 5
    assert (row["token_count"], row["active"], row["compacted"]) == (12, 1, 0)
    assert row["api_content"] == "sent\x00"
    assert (await written(db, session, token_count="abc"))[0]["token_count"] is None


@pytest.mark.parametrize(
    ("given", "read", "count"),
    [
        ('[{"id":"a"},{"id":"b"}]', [{"id": "a"}, {"id": "b"}], 2),
        ({"id": "x"}, {"id": "x"}, 1),
        ("", None, 0),
        ([], None, 0),
        ({}, None, 0),
        (0, None, 0),
    ],
)
async def test_tool_calls_are_decoded_and_counted(
    db: Any, session: str, given: Any, read: Any, count: int
) -> None:
    row, message = await written(db, session, role="assistant", tool_calls=given)
    assert row["tool_calls"] == message.get("tool_calls") == read
    assert (await db.get_session(session))["tool_call_count"] == count


async def test_tool_calls_that_are_not_json_are_left_out_with_a_warning(
    db: Any, session: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        row, _ = await written(db, session, role="assistant", tool_calls="not json")
    assert row["tool_calls"] is None
    assert "tool_calls" in caplog.text
    assert "not json" not in caplog.text


@pytest.mark.parametrize(
    "arguments", ['{"q": "温室"}', '{"q": "\ud800"}', '{"q": "\x00"}'], ids=["cjk", "half", "nul"]
)
async def test_tool_call_arguments_are_stored_readable(
    db: Any, raw: Any, session: str, arguments: str
) -> None:
    calls = [{"id": "c", "function": {"name": "f", "arguments": arguments}}]
    row, _ = await written(db, session, role="assistant", tool_calls=calls)
    assert row["tool_calls"] == calls
    [(stored,)] = await raw.fetch("SELECT tool_calls FROM messages")
    assert ("温室" in stored) == ("温室" in arguments)
    assert "\x00" not in stored


@pytest.mark.parametrize(
    ("given", "stored", "read"),
    [
        ([{"a": 1}], '[{"a": 1}]', [{"a": 1}]),
        ('[{"a":1}]', '[{"a":1}]', [{"a": 1}]),
        ("plain", "plain", None),
    ],
)
@pytest.mark.parametrize(
    "column", ["reasoning_details", "codex_reasoning_items", "codex_message_items"]
)
async def test_reasoning_columns_are_rows_of_text_and_values_of_conversations(
    db: Any, session: str, column: str, given: Any, stored: str, read: Any
) -> None:
    row, message = await written(db, session, role="assistant", **{column: given})
    assert row[column] == stored
    assert message[column] == read


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ('{"a":1}', {"a": 1}),
        ({"b": "\ud800"}, {"b": "\ud800"}),
        ("[1]", None),
        ("nope", None),
        (5, None),
        ({}, None),
    ],
)
async def test_display_metadata_is_an_object_or_nothing(
    db: Any, session: str, given: Any, read: Any
) -> None:
    row, message = await written(db, session, display_metadata=given)
    assert row["display_metadata"] == message.get("display_metadata") == read
    assert ("display_metadata" in message) == (read is not None)


async def test_observed_is_a_flag(db: Any, session: str) -> None:
    row, message = await written(db, session, observed="yes")
    assert (row["observed"], message["observed"]) == (1, True)
    row, message = await written(db, session, content="y", observed=None)
    assert row["observed"] == 0
    assert "observed" not in message


async def test_timestamps_are_taken_or_now(db: Any, clock: Any, session: str) -> None:
    taken = {"12.25": 12.25, datetime(2024, 1, 1, tzinfo=UTC): 1704067200.0, -5: -5.0, 0: 0.0}
    unusable = (None, "2024-01-01T00:00:00Z", float("nan"), [1], 8.4e252, 1700000000000)
    for given, expected in [*taken.items(), *((given, clock()) for given in unusable)]:
        row, message = await written(db, session, timestamp=given)
        assert row["timestamp"] == expected, given
        assert message.get("timestamp") == (expected or None), given


async def test_empty_sidecars(db: Any, session: str) -> None:
    row, _ = await written(db, session, api_content=5, display_kind=5)
    assert (row["api_content"], row["display_kind"]) == (None, None)
    row, message = await written(
        db, session, role="assistant", api_content="", reasoning="", reasoning_content=""
    )
    assert (row["api_content"], row["reasoning"], row["reasoning_content"]) == ("", "", "")
    assert message["reasoning_content"] == ""
    assert not message.keys() & {"api_content", "reasoning"}
