"""Conversations as a model sees them: messages.md sections 6 and 19, examples 31-39."""

from typing import Any

import pytest

from tests.contract.turns import assistant, contents, tool, user

REVIEW = "Review the conversation above and update the skill library now"


async def conversation(
    db: Any, session: str, *messages: dict[str, Any], **options: bool
) -> list[dict[str, Any]]:
    """Append the messages; return the conversation without times."""
    await db.append_messages_batch(session, messages)
    read = await db.get_messages_as_conversation(session, **options)
    return [{k: v for k, v in message.items() if k != "timestamp"} for message in read]


async def test_memory_is_cleaned_out_of_text(db: Any, session: str) -> None:
    text = "  hi <memory-context>secret</memory-context> there \n"
    read = await conversation(
        db, session, user(text), tool(text, "1"), user("a </memory-context> b")
    )
    assert contents(read) == ["hi  there", text, "a  b"]
    assert contents(await db.get_messages(session))[0] == text


async def test_harness_prompts_and_their_answers_are_left_out(db: Any, session: str) -> None:
    messages = (user("real"), assistant("ok"), user(REVIEW), assistant("cur"), assistant("second"))
    assert contents(await conversation(db, session, *messages)) == ["real", "ok", "second"]


async def test_stale_markers_are_emptied(db: Any, session: str) -> None:
    marker = assistant("[memory]", "1", api_content="[memory]")
    assert await conversation(db, session, marker, assistant("[memory]")) == [
        {"role": "assistant", "content": "", "tool_calls": [{"id": "1"}]},
        {"role": "assistant", "content": "[memory]"},
    ]


async def test_replays_are_dropped_among_ancestors_only(db: Any, session: str) -> None:
    messages = (
        *(user("same"), user("same"), assistant(""), user("same")),
        *(assistant("x"), user("same"), tool("t", "q"), user("same")),
    )
    assert len(await conversation(db, session, *messages)) == 8
    read = await db.get_messages_as_conversation(session, include_ancestors=True)
    assert contents(read) == ["same", "", "x", "same", "t"]


async def test_row_ids_on_request(db: Any, session: str) -> None:
    row_id = await db.append_message(session, "user", "a", timestamp=5, platform_message_id="p")
    assert await db.get_messages_as_conversation(session, include_row_ids=True) == [
        {"role": "user", "content": "a", "_row_id": row_id, "timestamp": 5.0, "message_id": "p"}
    ]


async def test_results_share_nothing(db: Any, session: str) -> None:
    await db.append_message(session, "user", [{"type": "text"}])
    first, second = [await db.get_messages_as_conversation(session) for _ in range(2)]
    first[0]["content"][0]["type"] = "changed"
    assert second[0]["content"] == [{"type": "text"}]


# Ancestors


async def test_ancestors_come_first_up_to_a_branch(db: Any, session: str) -> None:
    await db.append_message(session, "user", "root")
    await db.create_session("c", "cli", parent_session_id=session)
    await db.append_message("c", "user", "child")
    await db.create_session("d", "cli", parent_session_id="c", model_config={"_delegate_from": "c"})
    await db.append_message("d", "user", "delegate")
    await db.append_message(session, "user", "late")
    await db.create_session("b", "cli", parent_session_id="d", model_config={"_branched_from": "d"})
    await db.append_message("b", "user", "branch")
    await db.end_session("b", "compression")
    await db.create_session("e", "cli", parent_session_id="b", model_config={"_branched_from": "d"})
    await db.append_message("e", "user", "continued")

    async def shown(session_id: str) -> list[Any]:
        return contents(await db.get_messages_as_conversation(session_id, include_ancestors=True))

    assert await shown(session) == ["root", "late"]
    assert await shown("c") == ["root", "child", "late"]
    assert await shown("d") == ["root", "child", "delegate", "late"]
    assert await shown("b") == ["branch"]
    assert await shown("e") == ["branch", "continued"], "the inherited marker is not its own"


async def test_a_ring_of_ancestors_ends(db: Any, raw: Any, session: str) -> None:
    await db.create_session("c", "cli", parent_session_id=session)
    await raw.execute("UPDATE sessions SET parent_session_id = 'c' WHERE id = 's'")
    for session_id in ("c", session):
        await db.append_message(session_id, "user", session_id)
    for session_id in ("c", session):
        read = await db.get_messages_as_conversation(session_id, include_ancestors=True)
        assert contents(read) == ["c", "s"]


# Repair


@pytest.mark.parametrize(
    ("messages", "repaired"),
    [
        pytest.param(messages, repaired, id=name)
        for name, messages, repaired in [
            (
                "users",
                [user("a", api_content="z"), user("b"), user(""), assistant("r")],
                [user("a\n\nb"), assistant("r")],
            ),
            (
                "assistants",
                [assistant("a", "1"), assistant("b", "2"), *(tool("x", i) for i in "1219")],
                [assistant("a\nb", "1", "2"), tool("x", "1"), tool("x", "2")],
            ),
            (
                "orphan between assistants",
                [user("u"), assistant("a"), tool("orphan", "9"), assistant("b"), user("v")],
                [user("u"), assistant("a\nb"), user("v")],
            ),
            (
                "replaced by the next",
                [assistant("e", finish_reason="verification_required"), assistant("f")],
                [assistant("f")],
            ),
            (
                "interim of Codex",
                [assistant("a", codex_reasoning_items=[1]), assistant("b")],
                [assistant("a", codex_reasoning_items=[1]), assistant("b")],
            ),
            (
                "one answer per call",
                [
                    assistant("c", tool_calls=[{"id": "fc_1", "call_id": "call_1"}]),
                    tool("r", "call_1"),
                    tool("r2", "fc_1"),
                ],
                [
                    assistant("c", tool_calls=[{"id": "fc_1", "call_id": "call_1"}]),
                    tool("r", "call_1"),
                ],
            ),
        ]
    ],
)
async def test_alternation_is_repaired_on_request(
    db: Any, session: str, messages: Any, repaired: Any
) -> None:
    assert await conversation(db, session, *messages, repair_alternation=True) == repaired
    assert len(await db.get_messages_as_conversation(session)) == len(messages)
    await db.create_session("again", "cli")
    assert await conversation(db, "again", *repaired, repair_alternation=True) == repaired
