"""Which text of a message is searched, and shown as context."""

import pytest

from hermes_orm.search.text import context_text, search_columns, search_text

PARTS = [
    {"type": "text", "text": "picture of"},
    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
    {"type": "text", "text": "a giraffe"},
    {"type": "text", "text": 5},
    "loose",
]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("plain", "plain"),
        (None, ""),
        (PARTS, "picture of a giraffe"),
        (tuple(PARTS), "picture of a giraffe"),
        ([], ""),
        ({"type": "text", "text": "a dict"}, ""),
        ("a\0b\ud800", "a b\ufffd"),
        ([{"type": "text", "text": "a\0b\ud800"}], "a b\ufffd"),
    ],
)
def test_search_text(content: object, expected: str) -> None:
    assert search_text(content, "user") == expected


def test_search_text_is_a_prefix() -> None:
    assert len(search_text("界" * 70_000, "user")) == 65_536
    assert len(search_text("界" * 70_000, "tool")) == 8_192


def test_columns_share_the_prefix_in_their_order() -> None:
    columns = search_columns("x" * 65_530, "name", "calls", "assistant")
    assert columns == ("x" * 65_530, "name", "ca")
    assert search_columns("x" * 9_000, None, "calls", "tool")[1:] == ("", "calls")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("x" * 300, "x" * 200),
        (None, ""),
        ([{"type": "text", "text": " a "}, {"type": "text", "text": "b "}], "a  b"),
        ([{"type": "image_url", "image_url": {}}], "[multimodal content]"),
        ([], "[multimodal content]"),
        ({"type": "text"}, ""),
    ],
)
def test_context_text(content: object, expected: str) -> None:
    assert context_text(content) == expected
