"""What the tsvector of a message holds."""

from hypothesis import given, settings

from hermes_orm.search.vector import tsvector_text
from tests.search.corpora import TEXTS


def test_words_have_positions_and_cjk_pairs_have_none() -> None:
    assert tsvector_text("Café, 数据库 Café", None, None, "user") == (
        "'cafe':1 '数据库':2 'cafe':3 '~数据' '~据库'",
        3,
    )


def test_columns_are_apart() -> None:
    assert tsvector_text("one two", "read_file", '{"k": 1}', "assistant") == (
        "'one':1 'two':2 'read':5 'file':6 'k':9 '1':10",
        6,
    )


def test_tool_rows_have_no_pairs_and_a_short_prefix() -> None:
    vector, length = tsvector_text("数据 " + "x " * 5_000, "接口", None, "tool")
    assert "~" not in vector
    assert length == 1 + 4_095 + 1


def test_tool_calls_have_no_pairs() -> None:
    assert tsvector_text(None, None, '"数据"', "assistant") == ("'数据':5", 1)


def test_structured_content_is_its_text_parts() -> None:
    content = [{"type": "text", "text": "giraffe"}, {"type": "image_url", "image_url": {}}]
    assert tsvector_text(content, None, None, "user") == ("'giraffe':1", 1)


def test_the_columns_share_one_prefix() -> None:
    _, length = tsvector_text("x " * 32_000, "y " * 1_000, "z " * 1_000, "assistant")
    assert length == 32_768


def test_long_words_are_cut_on_a_character_boundary() -> None:
    vector, _ = tsvector_text("界" * 800, None, None, "tool")
    assert vector == f"'{'界' * 680}':1"


@settings(deadline=None)
@given(TEXTS)
def test_every_text_can_be_bound(text: str) -> None:
    vector, _ = tsvector_text(text, text, text, "user")
    assert b"\0" not in vector.encode()
    assert "\\" not in vector
