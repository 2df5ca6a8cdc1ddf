"""JSON columns, plain text, numbers and times of message rows."""

import json
import logging
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_orm.codec import (
    count_tool_calls,
    decode_display_metadata,
    decode_json,
    decode_tool_calls,
    encode_display_metadata,
    encode_integer,
    encode_json,
    encode_text,
    encode_timestamp,
    encode_tool_calls,
    is_encodable,
)

NOW = 1_700_000_000.0
any_text = st.text(st.characters(exclude_categories=()))
lone_surrogate = st.characters(min_codepoint=0xD800, max_codepoint=0xDBFF)


def circular() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["self"] = value
    return value


# tool_calls


@pytest.mark.parametrize(
    ("value", "read", "count"),
    [
        ('[{"id":"a"},{"id":"b"}]', [{"id": "a"}, {"id": "b"}], 2),
        ([{"id": "a"}], [{"id": "a"}], 1),
        (({"id": "a"},), [{"id": "a"}], 1),
        ({"id": "x"}, {"id": "x"}, 1),
        ([{"id": {1}}], [{"id": "{1}"}], 1),
        (5, 5, 1),
    ],
)
def test_tool_calls_are_stored_and_counted(value: object, read: object, count: int) -> None:
    stored, counted = encode_tool_calls(value)
    assert (decode_tool_calls(stored), counted) == (read, count)
    assert count_tool_calls(read) == count


@pytest.mark.parametrize("nothing", ["", [], {}, (), None, 0, False, "[]", "{}", "null"])
def test_no_tool_calls_are_null(nothing: object) -> None:
    assert encode_tool_calls(nothing) == (None, 0)
    assert count_tool_calls(None) == 0


def test_tool_calls_that_are_no_json_are_null_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert encode_tool_calls("not json, a secret") == (None, 0)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "secret" not in caplog.text


def test_tool_calls_keep_other_scripts_searchable() -> None:
    calls = [{"id": "c", "function": {"name": "f", "arguments": '{"q": "温室"}'}}]
    stored, _ = encode_tool_calls(calls)
    assert stored is not None
    assert "温室" in stored
    assert encode_tool_calls(json.dumps(calls)) == (stored, 1)
    assert decode_tool_calls(stored) == calls


def test_tool_calls_escape_what_a_database_cannot_hold() -> None:
    stored, _ = encode_tool_calls([{"a": "温\ud800\x00"}])
    assert stored == '[{"a": "温\\ud800\\u0000"}]'
    assert decode_tool_calls(stored) == [{"a": "温\ud800\x00"}]


@given(texts=st.lists(st.text() | lone_surrogate, min_size=1))
def test_every_call_reads_back_and_is_storable(texts: list[str]) -> None:
    stored, count = encode_tool_calls(texts)
    assert stored is not None
    assert is_encodable(stored)
    assert "\x00" not in stored
    assert (decode_tool_calls(stored), count) == (texts, len(texts))


def test_circular_tool_calls_are_stored_as_their_text() -> None:
    stored, count = encode_tool_calls([circular()])
    assert (decode_tool_calls(stored), count) == ("[{'self': {...}}]", 1)


@pytest.mark.parametrize("stored", ["{", "[" * 100_000, "1" * 5_000])
def test_corrupt_tool_calls_read_as_none_at_all(stored: str) -> None:
    assert decode_tool_calls(stored) == []


# Reasoning and codex columns


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        ([{"a": 1}], '[{"a": 1}]'),
        ('[{"a":1}]', '[{"a":1}]'),
        ("plain", "plain"),
        ({"é": {1}}, '{"\\u00e9": "{1}"}'),
        ("", None),
        ([], None),
        (None, None),
        (["\ud800\x00"], '["\\ud800\\u0000"]'),
        ('["\ud800"]', '["\\ud800"]'),
        ("no json \ud800\x00", "no json \ufffd\ufffd"),
    ],
)
def test_reasoning_keeps_text_and_encodes_the_rest(value: object, stored: str | None) -> None:
    assert encode_json(value) == stored


@given(text=any_text)
def test_stored_reasoning_text_is_stored_again_as_it_is(text: str) -> None:
    stored = encode_json(text)
    assert encode_json(stored) == stored


def test_reasoning_that_is_no_json_decodes_to_none() -> None:
    assert decode_json("plain") is None
    assert decode_json('[{"a":1}]') == [{"a": 1}]


# display_metadata


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        ({"a": "é"}, '{"a": "\\u00e9"}'),
        ('{"a":1}', '{"a": 1}'),
        ({"s": {1}}, '{"s": "{1}"}'),
        ({"o": "\ud800"}, '{"o": "\\ud800"}'),
    ],
)
def test_display_metadata_is_stored_as_an_object(value: object, stored: str) -> None:
    assert encode_display_metadata(value) == stored


@pytest.mark.parametrize("nothing", [None, "", {}, "{}"])
def test_no_display_metadata_is_null(nothing: object, caplog: pytest.LogCaptureFixture) -> None:
    assert encode_display_metadata(nothing) is None
    assert not caplog.records


@pytest.mark.parametrize(
    "odd", ["[1]", "a secret", 5, [1], '"{}"', "null", circular(), {(1, 2): 3}]
)
def test_display_metadata_that_is_no_object_is_null_with_a_warning(
    odd: object, caplog: pytest.LogCaptureFixture
) -> None:
    assert encode_display_metadata(odd) is None
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "secret" not in caplog.text


@pytest.mark.parametrize(
    ("stored", "read"),
    [
        (None, None),
        ('{"a": 1}', {"a": 1}),
        ('"{\\"a\\": 1}"', {"a": 1}),
        ('"\\"{}\\""', None),
        ("[1]", None),
        ("{bad", None),
    ],
)
def test_display_metadata_reads_as_an_object(stored: str | None, read: object) -> None:
    assert decode_display_metadata(stored) == read


# Text, integers, times


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (None, None),
        ("", ""),
        ("p\ud800\x00", "p\ufffd\ufffd"),
        (5, "5"),
        (True, "1"),
        (1.5, "1.5"),
        (b"\xc3\xa9", "é"),
    ],
)
def test_plain_columns_hold_scrubbed_text(value: object, stored: str | None) -> None:
    assert encode_text(value) == stored


@given(value=any_text | st.binary() | st.integers() | st.floats())
def test_plain_text_fits_every_database(value: object) -> None:
    stored = encode_text(value)
    assert stored is not None
    assert is_encodable(stored)
    assert "\x00" not in stored
    assert encode_text(stored) == stored


@pytest.mark.parametrize(
    ("value", "stored"),
    [("5", 5), (5.7, 5), (True, 1), (0, 0), (2**63 - 1, 2**63 - 1)],
)
def test_token_counts_are_integers(value: object, stored: int) -> None:
    assert encode_integer(value) == stored


@pytest.mark.parametrize("odd", [None, "abc", [], math.nan, math.inf, 2**63, -(2**63) - 1])
def test_other_token_counts_are_null(odd: object) -> None:
    assert encode_integer(odd) is None


class Broken:
    def timestamp(self) -> float:
        raise OSError


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("12.25", 12.25),
        (datetime(2024, 1, 1, tzinfo=UTC), 1704067200.0),
        (Decimal("1.5"), 1.5),
        (True, 1.0),
        (-5, -5.0),
        (0, 0.0),
        (-62135596800, -62135596800.0),
        (100_000_000_000, 1e11),
    ],
)
def test_times_are_seconds(value: object, seconds: float) -> None:
    read = encode_timestamp(value, NOW)
    assert (read, type(read)) == (seconds, float)


@pytest.mark.parametrize("odd", [None, "", "2024-01-01T00:00:00Z", "nan", math.nan, -math.inf, [1]])
def test_what_is_no_time_is_now(odd: object) -> None:
    assert encode_timestamp(odd, NOW) == NOW


@pytest.mark.parametrize(
    "odd", [8.4e252, 10**400, 1700000000000, -62135596801, date(2024, 1, 1), Broken()]
)
def test_times_out_of_range_are_now(odd: object) -> None:
    assert encode_timestamp(odd, NOW) == NOW
