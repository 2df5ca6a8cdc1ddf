"""Rows of messages: from arguments and dicts, and back to dicts."""

import copy
import re
from collections import UserDict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_orm.codec import POSTGRESQL_MARKER, SQLITE_MARKER
from hermes_orm.repositories.messages.rows import (
    MESSAGE_KEYS,
    EncodedMessage,
    decode_row,
    encode_message,
    encode_rows,
)
from hermes_orm.rows import MessageRow

NOW = 1_700_000_000.0
STEP = 1e-6


def encode(*messages: object) -> list[EncodedMessage]:
    return list(encode_rows(SQLITE_MARKER, messages, now=NOW))


def read(encoded: EncodedMessage) -> MessageRow:
    """The dict of a row after it was inserted."""
    stored: dict[str, Any] = {"id": 1, "session_id": "s", "active": 1, "compacted": 0, **encoded}
    return decode_row(tuple(stored[key] for key in MESSAGE_KEYS))


def test_the_keys_of_a_row_are_those_of_the_specification() -> None:
    assert " ".join(MESSAGE_KEYS) == (
        "id session_id role content tool_call_id tool_calls tool_name effect_disposition timestamp"
        " token_count finish_reason reasoning reasoning_content reasoning_details"
        " codex_reasoning_items codex_message_items platform_message_id observed active compacted"
        " api_content display_kind display_metadata"
    )


def test_an_encoded_row_has_the_types_of_its_columns() -> None:
    row = encode_message(
        POSTGRESQL_MARKER,
        now=NOW,
        role="assistant",
        content=[1],
        tool_name=7,
        tool_calls=[{"id": "1"}],
        token_count="12",
        reasoning_details={"a": 1},
        platform_message_id=42,
        observed="yes",
        timestamp=5,
        display_metadata={"m": 1},
        display_kind=3,
        api_content=5,
    )
    uid = row["message_uid"]
    assert re.fullmatch("[0-9a-f]{32}", uid)
    assert row == {
        "role": "assistant",
        "content": "\x01json:[1]",
        "tool_call_id": None,
        "tool_calls": '[{"id": "1"}]',
        "tool_name": "7",
        "effect_disposition": None,
        "timestamp": 5.0,
        "token_count": 12,
        "finish_reason": None,
        "reasoning": None,
        "reasoning_content": None,
        "reasoning_details": '{"a": 1}',
        "codex_reasoning_items": None,
        "codex_message_items": None,
        "platform_message_id": "42",
        "observed": 1,
        "_compressed_summary": 0,
        "api_content": None,
        "display_kind": None,
        "display_metadata": '{"m": 1}',
        "message_uid": uid,
        "tool_call_count": 1,
    }
    assert type(row["timestamp"]) is float


def test_append_keeps_reasoning_of_every_role() -> None:
    row = encode_message(SQLITE_MARKER, now=NOW, role="tool", reasoning="r", reasoning_content="")
    assert (row["reasoning"], row["reasoning_content"]) == ("r", "")


@pytest.mark.parametrize(("role", "stored"), [(None, "unknown"), ("", ""), ("r\ud800", "r\ufffd")])
def test_roles_are_any_text(role: object, stored: str) -> None:
    assert encode_message(SQLITE_MARKER, now=NOW, role=role)["role"] == stored
    assert encode({"role": role})[0]["role"] == stored


def test_batch_rows_keep_reasoning_of_assistants_only() -> None:
    thoughts = {"reasoning": "r", "reasoning_content": "", "reasoning_details": [1]}
    thoughts |= {"codex_reasoning_items": [2], "codex_message_items": [3]}
    tool, assistant = encode({"role": "tool", **thoughts}, {"role": "assistant", **thoughts})
    assert [tool[key] for key in thoughts] == [None] * 5  # type: ignore[literal-required]
    assert [assistant[key] for key in thoughts] == [  # type: ignore[literal-required]
        *("r", "", "[1]", "[2]", "[3]")
    ]


def test_batch_rows_know_the_names_of_conversations() -> None:
    message = {
        "role": "tool",
        "content": "t",
        "finish_reason": "fr",
        "message_id": "M",
        "name": "n",
    }
    tool, nameless = encode(message, {"content": "x", "id": 9, "active": 0, "_row_id": 8})
    assert (tool["finish_reason"], tool["platform_message_id"]) == ("fr", "M")
    assert nameless["role"] == "unknown"
    assert not {"id", "active", "name", "_row_id", "message_id"} & nameless.keys()


@pytest.mark.parametrize(
    ("message", "stored"),
    [
        ({"platform_message_id": "P", "message_id": "M"}, "P"),
        ({"platform_message_id": None, "message_id": "M"}, "M"),
        ({"platform_message_id": ""}, ""),
        ({}, None),
    ],
)
def test_platform_ids_have_two_names(message: dict[str, object], stored: str | None) -> None:
    assert encode(message)[0]["platform_message_id"] == stored


def test_summaries_are_marked() -> None:
    rows = encode({"_compressed_summary": True}, {"_compressed_summary": 0}, {})
    assert [row["_compressed_summary"] for row in rows] == [1, 0, 0]


def test_rows_without_a_time_stay_in_order() -> None:
    times = [None, None, NOW + 1000, None, 5, None]
    rows = encode(*({"timestamp": time} for time in times))
    assert [row["timestamp"] for row in rows] == pytest.approx(
        [NOW, NOW + STEP, NOW + 1000, NOW + 1000 + STEP, 5.0, NOW + 1000 + 3 * STEP], abs=STEP / 2
    )


@pytest.mark.parametrize("odd", ["x", None, 5, [("role", "user")]])
def test_elements_must_be_mappings(odd: object) -> None:
    with pytest.raises(TypeError, match=r"messages\[1\] must be a mapping"):
        encode({"role": "user"}, odd)


def test_any_mapping_is_taken_and_none_is_changed() -> None:
    message = {"role": "assistant", "content": [{"a": [1]}], "tool_calls": [{"id": "1"}]}
    before = copy.deepcopy(message)
    first, second = encode(message, UserDict(message))
    assert message == before
    assert first["content"] == second["content"]


def test_uids_differ() -> None:
    rows = encode(*({"role": "user"} for _ in range(100)))
    assert len({row["message_uid"] for row in rows}) == 100


# Reading

column_text = st.none() | st.text(st.characters(exclude_categories=()))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@pytest.mark.parametrize("marker", [SQLITE_MARKER, POSTGRESQL_MARKER])
@given(
    message=st.fixed_dictionaries(
        {"role": st.sampled_from(["assistant", "user", "tool", ""])},
        optional={
            "content": column_text | json_values,
            "tool_calls": json_values | st.text(),
            "tool_call_id": column_text,
            "tool_name": column_text,
            "effect_disposition": column_text,
            "finish_reason": column_text,
            "platform_message_id": column_text,
            "timestamp": st.floats() | st.text(),
            "token_count": st.integers() | st.text(),
            "reasoning": column_text,
            "reasoning_content": column_text,
            "reasoning_details": json_values | column_text,
            "codex_message_items": json_values | column_text,
            "observed": st.booleans(),
            "api_content": column_text,
            "display_kind": column_text,
            "display_metadata": json_values | st.text(),
        },
    )
)
def test_a_row_that_was_read_can_be_written_again(marker: str, message: dict[str, object]) -> None:
    row = read(next(encode_rows(marker, [message], now=NOW)))
    again = read(next(encode_rows(marker, [row], now=NOW + 9)))
    assert again == row


def test_legacy_nulls_read_as_numbers() -> None:
    values: dict[str, Any] = dict.fromkeys(MESSAGE_KEYS)
    row = decode_row(tuple(values.values()))
    assert (row["observed"], row["active"]) == (0, 1)


def test_reading_decodes_calls_and_metadata_but_not_reasoning() -> None:
    message = {"role": "assistant", "reasoning_details": [1], "tool_calls": [2]}
    row = read(encode({**message, "display_metadata": {"a": 1}, "api_content": "\x00json:[1]"})[0])
    assert row["reasoning_details"] == "[1]"
    assert row["tool_calls"] == [2]
    assert row["display_metadata"] == {"a": 1}
    assert row["api_content"] == "\x00json:[1]"
