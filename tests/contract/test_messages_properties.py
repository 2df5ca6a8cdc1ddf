"""What holds for every message."""

import itertools
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hermes_orm.dialects import Prepared
from tests.contract.turns import assistant, tool, user

quick = settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
numbers = itertools.count()

words = st.text(max_size=30) | st.sampled_from(["", "\x00json:[1]", "\x01json:", "a\x00b", "温室"])
anything = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | words,
    lambda parts: st.lists(parts, max_size=3) | st.dictionaries(words, parts, max_size=3),
    max_leaves=5,
)
values = {
    "role": st.sampled_from(["user", "assistant", "tool", "system", ""]),
    "content": words
    | st.lists(anything, max_size=3)
    | st.dictionaries(words, anything)
    | st.none(),
    "timestamp": st.floats(0, 2e9),
}
optional = {
    "tool_name": words,
    "tool_call_id": words,
    "tool_calls": st.lists(st.dictionaries(words, anything, max_size=2), max_size=2),
    "token_count": st.integers(-(2**63), 2**63 - 1),
    "finish_reason": words,
    "platform_message_id": words,
    "observed": st.booleans(),
    "effect_disposition": words,
    "api_content": words,
    "display_kind": words,
    "display_metadata": st.dictionaries(words, anything, max_size=2),
}
thoughts = {
    "reasoning": words,
    "reasoning_content": words,
    "reasoning_details": st.lists(anything, max_size=2) | words,
    "codex_reasoning_items": st.lists(anything, max_size=2),
    "codex_message_items": st.lists(anything, max_size=2),
}


def without_identity(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{k: v for k, v in row.items() if k not in ("id", "session_id")} for row in rows]


async def new_session(db: Any) -> str:
    session_id: str = await db.create_session(f"n{next(numbers)}", "cli")
    return session_id


@quick
@given(content=st.lists(words | st.lists(anything) | st.dictionaries(words, anything), min_size=1))
async def test_content_round_trips(db: Any, content: list[Any]) -> None:
    session_id = await new_session(db)
    for value in content:
        await db.append_message(session_id, "tool", value, api_content=str(value))
    rows = await db.get_messages(session_id)
    assert [row["content"] for row in rows] == content
    assert [row["api_content"] for row in rows] == [str(value) for value in content]


@quick
@given(
    messages=st.lists(
        st.fixed_dictionaries(values, optional=optional)
        | st.fixed_dictionaries(
            values | {"role": st.just("assistant")}, optional=optional | thoughts
        ),
        min_size=1,
        max_size=4,
    )
)
async def test_a_batch_equals_single_appends_and_reads_back_into_itself(
    db: Any, messages: list[dict[str, Any]]
) -> None:
    single, batch, copy = [await new_session(db) for _ in range(3)]
    for message in messages:
        await db.append_message(single, **message)
    assert await db.append_messages_batch(batch, messages) == len(messages)
    rows = without_identity(await db.get_messages(batch))
    assert rows == without_identity(await db.get_messages(single))
    await db.append_messages_batch(copy, rows)
    assert without_identity(await db.get_messages(copy)) == rows
    conversation = await db.get_messages_as_conversation(batch)
    assert conversation == await db.get_messages_as_conversation(single)
    one, other = [await db.get_session(session_id) for session_id in (single, batch)]
    assert one["message_count"] == other["message_count"]
    assert one["tool_call_count"] == other["tool_call_count"]


@pytest.mark.parametrize("on_driver", [True, False])
async def test_statements_through_sqlalchemy_give_the_same(
    db: Any, raw: Any, clock: Any, monkeypatch: pytest.MonkeyPatch, on_driver: bool
) -> None:
    monkeypatch.setattr(Prepared, "on_driver", on_driver)
    await db.create_session("s", "cli")
    await raw.execute("INSERT INTO session_turn_leases VALUES ('s', 'H', 1, 2)")
    claim = {"turn_lease_holder": "H"}
    first = await db.append_message("s", "user", ["é"], token_count=5, **claim)
    messages = [assistant("温室", "1", timestamp=5.5), tool("a\x00b", "1")]
    assert await db.append_messages_batch("s", messages, **claim) == 2
    await db.append_messages_batch("s", [user(str(number)) for number in range(2100)])
    for unknown in ("nope", "s"):
        with pytest.raises((ValueError, RuntimeError)):
            await db.append_message(unknown, "user", "x", turn_lease_holder="I")
    rows = await db.get_messages("s")
    assert [row["id"] for row in rows] == list(range(first, first + 2103))
    assert [row["content"] for row in rows[:4]] == [["é"], "温室", "a\x00b", "0"]
    assert (rows[0]["token_count"], rows[1]["timestamp"]) == (5, 5.5)
    conversation = await db.get_messages_as_conversation("s", include_ancestors=True)
    assert len(conversation) == 2103
    assert conversation[1] == assistant("温室", "1", timestamp=5.5)
