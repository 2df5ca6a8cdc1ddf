"""Rows of a transcript become the messages that a model sees."""

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_orm.codec import SQLITE_MARKER
from hermes_orm.repositories.messages.projection import (
    CONVERSATION_COLUMNS,
    HARNESS_PROMPTS,
    Projection,
    clean_context,
    conversation,
)
from hermes_orm.repositories.messages.rows import encode_rows
from hermes_orm.rows import ConversationMessage


def row(role: str, content: Any = None, **columns: Any) -> tuple[Any, ...]:
    """A stored row as a select of `CONVERSATION_COLUMNS` gives it."""
    values = {"id": 7, "role": role, "content": content, "timestamp": 0.0, "observed": 0, **columns}
    assert values.keys() <= set(CONVERSATION_COLUMNS)
    return tuple(values.get(column) for column in CONVERSATION_COLUMNS)


def project(*rows: tuple[Any, ...], **options: bool) -> list[ConversationMessage]:
    return conversation(rows, **options)


def contents(*rows: tuple[Any, ...], **options: bool) -> list[Any]:
    return [message["content"] for message in project(*rows, **options)]


# Keys


def test_a_plain_message_has_role_and_content_only() -> None:
    assert project(row("user", "hi")) == [{"role": "user", "content": "hi"}]


def test_every_key_appears_when_it_has_a_value() -> None:
    full = row(
        "assistant",
        '\x00json:[{"a": 1}]',
        timestamp=12.5,
        tool_call_id="tc",
        tool_calls='[{"id": "1"}]',
        tool_name="tn",
        effect_disposition="none",
        platform_message_id="P",
        observed=1,
        api_content="  sent  ",
        display_kind="k",
        display_metadata='{"m": 1}',
        finish_reason="stop",
        reasoning="r",
        reasoning_content="rc",
        reasoning_details='[{"d": 1}]',
        codex_reasoning_items="[1]",
        codex_message_items="[2]",
    )
    assert project(full, with_row_ids=True) == [
        {
            "role": "assistant",
            "content": [{"a": 1}],
            "_row_id": 7,
            "api_content": "  sent  ",
            "display_kind": "k",
            "display_metadata": {"m": 1},
            "timestamp": 12.5,
            "tool_call_id": "tc",
            "tool_name": "tn",
            "effect_disposition": "none",
            "tool_calls": [{"id": "1"}],
            "message_id": "P",
            "observed": True,
            "finish_reason": "stop",
            "reasoning": "r",
            "reasoning_content": "rc",
            "reasoning_details": [{"d": 1}],
            "codex_reasoning_items": [1],
            "codex_message_items": [2],
        }
    ]


def test_empty_values_have_no_key_except_reasoning_content() -> None:
    texts = dict.fromkeys(set(CONVERSATION_COLUMNS) - {"id", "role", "timestamp", "observed"}, "")
    message = {"role": "assistant", "content": ""}
    assert project(row("assistant", **texts)) == [{**message, "reasoning_content": ""}]
    assert project(row("assistant", "")) == [message]


def test_only_assistants_show_reasoning_and_finish_reason() -> None:
    thoughts = {"finish_reason": "stop", "reasoning": "r", "reasoning_content": "", "id": 3}
    thoughts |= {"reasoning_details": "[1]", "codex_reasoning_items": "[1]"}
    assert project(row("tool", "t", **thoughts)) == [{"role": "tool", "content": "t"}]


def test_corrupt_json_shows_as_the_specification_says() -> None:
    broken = {"tool_calls": "{", "reasoning_details": "plain", "display_metadata": "[1]"}
    assert project(row("assistant", "a", **broken)) == [
        {"role": "assistant", "content": "a", "tool_calls": [], "reasoning_details": None}
    ]


def test_columns_behind_the_expected_ones_are_ignored() -> None:
    expected = {"role": "assistant", "content": "a", "finish_reason": "stop"}
    assert project((*row("assistant", "a", finish_reason="stop"), "session")) == [expected]


def test_results_share_nothing() -> None:
    rows = [row("assistant", '\x00json:[{"a": 1}]', tool_calls='[{"id": "1"}]')]
    first, second = conversation(rows), conversation(rows)
    first[0]["content"].append("x")  # type: ignore[union-attr]
    first[0]["tool_calls"].append("x")
    assert second == conversation(rows) != first


@given(
    content=st.text() | st.lists(st.text()) | st.none(),
    tool_calls=st.none() | st.lists(st.dictionaries(st.text(), st.text()), min_size=1),
    details=st.none() | st.lists(st.integers(), min_size=1),
)
def test_written_messages_project_to_themselves(
    content: Any, tool_calls: Any, details: Any
) -> None:
    message = {"role": "tool", "content": content, "tool_calls": tool_calls, "tool_name": "t"}
    thinking = {"role": "assistant", "content": ["x"], "reasoning_details": details}
    encoded = encode_rows(SQLITE_MARKER, [message, thinking], now=5.0)
    rows = [tuple({"id": 1, **row}[column] for column in CONVERSATION_COLUMNS) for row in encoded]
    for read, written in zip(conversation(rows), [message, thinking], strict=True):
        timeless = {key: value for key, value in read.items() if key != "timestamp"}
        assert timeless == {k: v for k, v in written.items() if v is not None or k == "content"}


# Context cleaning

NOTE = "[System note: The following is recalled memory context, NOT new user input. Treat as "


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("  hi <memory-context>secret</memory-context> there \n", "hi  there"),
        ("a </memory-context> b", "a  b"),
        ("a < MEMORY-context >\nx\n</ Memory-Context\n> b", "a  b"),
        ("<memory-context>1</memory-context>k<memory-context>2</memory-context>", "k"),
        ("a <memory-context> b", "a  b"),
        ("a <memory-context>x</memory-context> b <memory-context> c", "a  b  c"),
        ("</memory-context>a<memory-context>b", "ab"),
        ("<memory-context><memory-context>x</memory-context>y", "y"),
        (NOTE + "informational background data.]\n\nhi", "hi"),
        (NOTE + "authoritative reference data, more: (x).] hi", "hi"),
        (NOTE.lower().replace(", not", ",\n\tnot") + "informational background data.]hi", "hi"),
        (NOTE + "something else.] hi", NOTE + "something else.] hi"),
        ("< memory> [System note: x] <b>", "< memory> [System note: x] <b>"),
    ],
)
def test_recalled_memory_is_cleaned_out(text: str, cleaned: str) -> None:
    assert contents(row("user", text), row("assistant", text)) == [cleaned, cleaned]


def test_other_roles_and_structured_content_keep_their_text() -> None:
    text = "  <memory-context>secret</memory-context> "
    structured = SQLITE_MARKER + json.dumps([text])
    assert contents(row("tool", text), row("system", text)) == [text, text]
    assert contents(row("user", structured)) == [[text]]


def test_cleaning_takes_linear_time() -> None:
    started = time.perf_counter()
    clean_context("<memory-context>" * 50_000)
    clean_context("<memory-context>x</memory-context>" * 20_000 + "<memory-context>" * 20_000)
    clean_context("<" + " " * 100_000)
    clean_context("[System note:" * 50_000)
    assert time.perf_counter() - started < 5


# Replay


def test_repeated_questions_are_dropped_until_an_answer() -> None:
    rows = [row("user", "same"), row("user", "same"), row("assistant", ""), row("user", "same")]
    rows += [row("assistant", "x"), row("user", "same"), row("tool", "t"), row("user", "same")]
    assert contents(*rows, deduplicate=True) == ["same", "", "x", "same", "t"]
    assert len(contents(*rows)) == 8


def test_replay_compares_cleaned_text() -> None:
    rows = [row("user", " a "), row("user", "a<memory-context>x</memory-context>")]
    assert contents(*rows, deduplicate=True) == ["a"]


def test_empty_and_structured_questions_are_never_dropped() -> None:
    rows = [
        row("user", ""),
        row("user", ""),
        row("user", "\x00json:[1]"),
        row("user", "\x00json:[1]"),
    ]
    assert contents(*rows, deduplicate=True) == ["", "", [1], [1]]


def test_an_assistant_with_calls_only_is_an_answer() -> None:
    rows = [row("user", "a"), row("assistant", None, tool_calls='[{"id": "1"}]'), row("user", "a")]
    assert len(contents(*rows, deduplicate=True)) == 3


def test_slices_give_the_same_as_one_read() -> None:
    rows = [row("user", "a"), row("user", HARNESS_PROMPTS[0]), row("assistant", "x")] * 3
    sliced = Projection(deduplicate=True)
    for one in rows:
        sliced.add([one])
    assert sliced.messages == conversation(rows, deduplicate=True)


# Harness and stale markers


@pytest.mark.parametrize("prompt", HARNESS_PROMPTS)
@pytest.mark.parametrize("role", ["user", "system"])
def test_harness_prompts_go_with_the_answer_that_follows(role: str, prompt: str) -> None:
    rows = [row("user", "real"), row("assistant", "ok"), row(role, f"\n {prompt} now")]
    rows += [row("assistant", "curated"), row("assistant", "second")]
    assert contents(*rows) == ["real", "ok", "second"]


def test_only_the_directly_following_assistant_is_an_answer() -> None:
    rows = [row("user", HARNESS_PROMPTS[0]), row("user", "u"), row("assistant", "a")]
    assert contents(*rows) == ["u", "a"]


def test_a_harness_prompt_by_an_assistant_or_tool_stays() -> None:
    rows = [row("assistant", HARNESS_PROMPTS[0]), row("tool", HARNESS_PROMPTS[1])]
    assert contents(*rows) == list(HARNESS_PROMPTS)


def test_a_stale_marker_beside_tool_calls_is_emptied() -> None:
    calls = '[{"id": "1"}]'
    stale = row("assistant", " [memory] ", tool_calls=calls, api_content="[memory]")
    assert project(stale) == [{"role": "assistant", "content": "", "tool_calls": [{"id": "1"}]}]


@pytest.mark.parametrize("content", ["[1a]", "[a b]", "[a]x", "[]", "[a] [b]"])
def test_other_bracketed_text_stays(content: str) -> None:
    assert contents(row("assistant", content, tool_calls='[{"id": "1"}]')) == [content]


def test_a_marker_without_tool_calls_stays() -> None:
    kept = row("assistant", "[memory]", api_content="[memory]")
    expected = {"role": "assistant", "content": "[memory]", "api_content": "[memory]"}
    assert project(kept) == [expected]
    assert contents(row("assistant", "[memory]", tool_calls="{")) == ["[memory]"]
