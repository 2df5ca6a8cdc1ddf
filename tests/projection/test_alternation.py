"""Alternation repair of a projected conversation."""

import copy
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from hermes_orm.repositories.messages.alternation import repair_alternation
from hermes_orm.rows import ConversationMessage


def message(role: str, content: Any, **keys: Any) -> ConversationMessage:
    return cast(ConversationMessage, {"role": role, "content": content, **keys})


def user(content: Any, **keys: Any) -> ConversationMessage:
    return message("user", content, **keys)


def assistant(content: Any, *call_ids: str, **keys: Any) -> ConversationMessage:
    if call_ids:
        keys["tool_calls"] = [{"id": call_id} for call_id in call_ids]
    return message("assistant", content, **keys)


def tool(content: str, call_id: str) -> ConversationMessage:
    return message("tool", content, tool_call_id=call_id)


def repair(*messages: ConversationMessage) -> list[ConversationMessage]:
    return repair_alternation(list(messages))


# Users


def test_adjacent_users_become_one() -> None:
    repaired = repair(
        user("a", api_content="sent", timestamp=1.0), user("b"), user(""), assistant("r")
    )
    assert repaired == [user("a\n\nb", timestamp=1.0), assistant("r")]


def test_the_text_that_is_not_empty_stays() -> None:
    assert repair(user("", message_id="1"), user("b", message_id="2")) == [
        user("b", message_id="1")
    ]


def test_users_without_text_stay_apart() -> None:
    conversation = [user([1]), user("a"), user(None), user("b"), user([2])]
    assert repair(*conversation) == conversation


def test_a_lone_user_keeps_what_was_sent() -> None:
    assert repair(user("a", api_content="sent")) == [user("a", api_content="sent")]


# Assistants


def test_adjacent_assistants_become_one_with_all_calls_and_their_answers() -> None:
    repaired = repair(
        *(assistant("a", "1"), assistant("b", "2")),
        *(tool("r1", "1"), tool("r2", "2"), tool("again", "1"), tool("orphan", "9")),
    )
    assert repaired == [assistant("a\nb", "1", "2"), tool("r1", "1"), tool("r2", "2")]


def test_merged_assistants_keep_the_keys_of_the_first() -> None:
    first = assistant(" a ", finish_reason="stop", reasoning="r", timestamp=1.0, api_content="x")
    second = assistant("b", finish_reason="length", reasoning_content="thought", timestamp=2.0)
    assert repair(first, second) == [
        assistant(
            "a\nb", finish_reason="stop", reasoning="r", timestamp=1.0, reasoning_content="thought"
        )
    ]


def test_api_content_stays_while_the_content_does() -> None:
    assert repair(assistant("a", api_content="x"), assistant("", "1")) == [
        {**assistant("a", "1"), "api_content": "x"}
    ]


def test_reasoning_of_the_first_comes_first() -> None:
    pair = [assistant("a", reasoning_content="x"), assistant("", reasoning_content="y")]
    assert repair(*pair) == [assistant("a", reasoning_content="x")]
    assert repair(assistant("a"), assistant("", reasoning_content="")) == [
        assistant("a", reasoning_content="")
    ]


def test_structured_content_is_never_joined() -> None:
    assert repair(assistant([1]), assistant("b")) == [assistant([1])]
    assert repair(assistant("a"), assistant([2])) == [assistant("a")]
    assert repair(assistant(None), assistant([2])) == [assistant([2])]
    assert repair(assistant(""), assistant(None)) == [assistant("")]


def test_an_answer_under_verification_gives_way_to_the_next() -> None:
    for reason in ("verification_required", "verify_hook_continue"):
        early = assistant("e", "1", finish_reason=reason)
        assert repair(early, assistant("f")) == [assistant("f")]
        assert repair(early, early, assistant("f")) == [assistant("f")]
        assert repair(assistant("d"), early)[0]["content"] == "d\ne"


def test_interim_messages_of_codex_stay_apart() -> None:
    for key, value in [
        ("codex_reasoning_items", [1]),
        ("codex_message_items", [1]),
        ("finish_reason", "incomplete"),
    ]:
        interim = assistant("a", **{key: value})
        assert repair(interim, assistant("b")) == [interim, assistant("b")]
        assert repair(assistant("b"), interim) == [assistant("b"), interim]


# Tools


def test_a_dropped_tool_message_joins_its_neighbours() -> None:
    repaired = repair(user("u"), assistant("a"), tool("orphan", "9"), assistant("b"), user("v"))
    assert repaired == [user("u"), assistant("a\nb"), user("v")]


def test_a_call_is_answered_once_under_either_name() -> None:
    calling = assistant("a", tool_calls=[{"id": "fc_1", "call_id": "call_1"}])
    assert repair(calling, tool("r", "call_1"), tool("r2", "fc_1")) == [
        *(calling, tool("r", "call_1"))
    ]


def test_users_end_the_time_for_answers_but_systems_do_not() -> None:
    calling, answer = assistant("a", "1"), tool("r", "1")
    assert repair(calling, user("u"), answer) == [calling, user("u")]
    assert repair(calling, message("system", "s"), answer) == [
        *(calling, message("system", "s"), answer)
    ]


def test_odd_calls_are_tolerated() -> None:
    single = assistant("a", tool_calls={"id": "1"})
    assert repair(single, tool("r", "1")) == [single, tool("r", "1")]
    odd = assistant("a", tool_calls=["x", {"id": None}, 5])
    assert repair(odd, message("tool", "r")) == [odd]


def test_other_roles_separate_and_stay() -> None:
    conversation = [user("a"), message("session_meta", "m"), user("b"), message("system", "s")]
    assert repair(*conversation) == conversation


# Any conversation

ids = st.sampled_from(["1", "2", "3"])
contents = st.sampled_from(["", "a", "b", None, [1]])
any_message = st.one_of(
    st.builds(user, contents),
    st.builds(assistant, contents),
    st.builds(assistant, contents, ids, ids),
    st.builds(assistant, contents, finish_reason=st.sampled_from(["incomplete", "stop"])),
    st.builds(assistant, contents, ids, finish_reason=st.just("verification_required")),
    st.builds(tool, st.just("r"), ids),
    st.builds(message, st.just("system"), contents),
)


@given(st.lists(any_message, max_size=12))
def test_repairing_again_changes_nothing(messages: list[ConversationMessage]) -> None:
    before = copy.deepcopy(messages)
    repaired = repair_alternation(messages)
    assert repair_alternation(repaired) == repaired
    assert messages == before
