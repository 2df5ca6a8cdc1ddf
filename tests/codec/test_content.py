"""Message content and `api_content`: every value comes back as itself on both databases."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_orm.codec import (
    POSTGRESQL_MARKER,
    SQLITE_MARKER,
    decode_api_content,
    decode_content,
    encode_api_content,
    encode_content,
    is_encodable,
    without_surrogates,
)

markers = pytest.mark.parametrize("marker", [SQLITE_MARKER, POSTGRESQL_MARKER])
any_text = st.text(st.characters(exclude_categories=())) | st.builds(
    str.__add__,
    st.sampled_from([SQLITE_MARKER, POSTGRESQL_MARKER, "\x00", "\x01"]),
    st.text(st.characters(exclude_categories=())) | st.sampled_from(["[1,2]", "null", '"x"', "{"]),
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


def stored_and_read(marker: str, value: object) -> Any:
    return decode_content(encode_content(marker, value))


@markers
@pytest.mark.parametrize(
    ("given_value", "read"),
    [
        ("", ""),
        (None, None),
        ([], []),
        ({}, {}),
        ([{"type": "text", "text": "é"}], [{"type": "text", "text": "é"}]),
        ({"a": 1}, {"a": 1}),
        ((1, 2), [1, 2]),
        (5, "5"),
        (1.5, "1.5"),
        (True, "1"),
        (False, "0"),
        (b"caf\xc3\xa9 \xff", "café \ufffd"),
        ("\x00json:[1,2]", "\x00json:[1,2]"),
        ("\x01json:[1,2]", "\x01json:[1,2]"),
        ("\x00json:broken", "\x00json:broken"),
        ("a\x00b", "a\x00b"),
        (b"a\x00b", "a\x00b"),
        ("x\ud800y", "x\ufffdy"),
        ("\ud83d\ude00", "\ufffd\ufffd"),
        (["\ud800"], ["\ud800"]),
        ([["a\x00b"]], [["a\x00b"]]),
        ({"s": {1}}, {"s": "{1}"}),
        ({(1, 2): "x"}, "{(1, 2): 'x'}"),
    ],
)
def test_content_reads_back(marker: str, given_value: object, read: object) -> None:
    result = stored_and_read(marker, given_value)
    assert result == read
    assert type(result) is type(read)


def test_circular_content_is_stored_as_its_text() -> None:
    circular: list[object] = [1]
    circular.append(circular)
    assert stored_and_read(SQLITE_MARKER, circular) == "[1, [...]]"


def test_structured_content_has_the_documented_stored_form() -> None:
    assert encode_content(SQLITE_MARKER, [{"a": "é"}]) == '\x00json:[{"a": "\\u00e9"}]'
    assert encode_content(POSTGRESQL_MARKER, [{"a": "é"}]) == '\x01json:[{"a": "\\u00e9"}]'


def test_ordinary_text_is_stored_as_it_is() -> None:
    assert encode_content(SQLITE_MARKER, "a\x00b") == "a\x00b"
    assert encode_content(POSTGRESQL_MARKER, "温室") == "温室"


def test_a_stored_blob_reads_as_text() -> None:
    assert decode_content(b"caf\xc3\xa9\xff") == "café\ufffd"


@pytest.mark.parametrize("rest", ["broken", "[" * 100_000, "1" * 5_000])
def test_unreadable_json_behind_a_marker_reads_as_text(rest: str) -> None:
    assert decode_content(SQLITE_MARKER + rest) == SQLITE_MARKER + rest


@markers
@given(text=any_text)
def test_every_string_reads_back_with_surrogates_scrubbed(marker: str, text: str) -> None:
    assert stored_and_read(marker, text) == without_surrogates(text)
    assert decode_api_content(encode_api_content(marker, text)) == without_surrogates(text)


@markers
@given(value=st.lists(json_values, max_size=3))
def test_every_structure_reads_back(marker: str, value: object) -> None:
    assert stored_and_read(marker, value) == value


@markers
@given(value=any_text | st.binary() | st.lists(any_text))
def test_stored_text_fits_the_database(marker: str, value: object) -> None:
    stored = encode_content(marker, value)
    assert stored is not None
    assert is_encodable(stored)
    assert marker == SQLITE_MARKER or "\x00" not in stored


@markers
@given(text=any_text)
def test_reading_and_writing_again_changes_nothing(marker: str, text: str) -> None:
    stored = encode_content(marker, text)
    assert encode_content(marker, decode_content(stored)) == stored


@pytest.mark.parametrize("value", [5, None, ["x"], b"x"])
def test_api_content_stores_text_only(value: object) -> None:
    assert encode_api_content(SQLITE_MARKER, value) is None


def test_empty_api_content_is_kept() -> None:
    assert encode_api_content(SQLITE_MARKER, "") == ""


def test_api_content_is_text_even_behind_a_marker() -> None:
    assert decode_api_content("\x00json:[1]") == "\x00json:[1]"
