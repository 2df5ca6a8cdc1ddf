"""Export, import, export: equal but for ids and what usage 4.4 lists as not imported."""

import json
import random
from collections.abc import Callable
from typing import Any

from hermes_orm import SessionDB
from hermes_orm.services.markdown import session_markdown
from tests.contract.turns import assistant, tool, user

NOT_IMPORTED = {
    *("session_key", "chat_id", "chat_type", "thread_id", "display_name", "origin_json"),
    *("profile_name", "expiry_finalized", "pinned", "hidden", "last_read_at", "title_source"),
    *("last_activity_at", "last_activity_description", "last_activity_provenance"),
    *("handoff_state", "handoff_platform", "handoff_error", "rewind_count", "last_active"),
    *("compression_failure_cooldown_until", "compression_failure_error"),
    *("compression_fallback_streak", "compression_ineffective_count"),
}


def comparable(sessions: Any) -> dict[str, Any]:
    """Exported sessions by id, without what an import does not take over."""
    return {
        session["id"]: {
            **{key: value for key, value in session.items() if key not in NOT_IMPORTED},
            "messages": [
                {key: value for key, value in message.items() if key != "id"}
                for message in session["messages"]
            ],
        }
        for session in sessions
    }


async def test_all_kinds_of_fields(db: Any, make_location: Callable[..., str]) -> None:
    """Field report J4."""
    config = {"temperature": 0.5, "é": [1, None]}
    await db.create_session(
        *("s", "telegram"), system_prompt="be brief", model_config=config, cwd="/w", user_id="u"
    )
    await db.set_session_title("s", "A title")
    parts = [{"type": "text", "text": "a\0"}, {"type": "image_url", "image_url": {"url": "data:"}}]
    await db.append_messages_batch(
        "s",
        [
            user(parts, api_content="sent\0", display_kind="k", display_metadata={"n": 1}),
            assistant(
                None,
                "c1",
                *("c2",),
                token_count=3,
                finish_reason="tool_calls",
                reasoning="r",
                reasoning_content="rc",
                reasoning_details=[{"t": 1}],
                codex_reasoning_items=[{"e": "x"}],
                codex_message_items='[{"compact":1}]',
                effect_disposition="none",
            ),
            tool("result", "c1", tool_name="read", observed=True),
            user("", platform_message_id="p1"),
            assistant("undone"),
            user("undone"),
        ],
    )
    rows = await db.get_messages("s")
    await db.rewind_to_message("s", rows[-1]["id"])
    await db.update_token_counts("s", input_tokens=2**40, model="m", estimated_cost_usd=0.5)
    await db.end_session("s", "done")
    exported = await db.export_all()
    for driver in ("sqlite", "postgresql+asyncpg"):
        async with SessionDB(make_location(driver)) as other:
            result = await other.import_sessions(json.loads(json.dumps(exported)))
            assert result["ok"], result
            again = await other.export_all()
            assert comparable(again) == comparable(exported)
            assert again[0]["message_count"] == len(rows) - 1
            assert (await other.search_messages("result"))[0]["session_id"] == "s"


async def test_lone_surrogates_in_structured_values(
    db: Any, make_location: Callable[..., str]
) -> None:
    """What JSON holds is exported and comes back; texts of columns hold U+FFFD at once."""
    lone = {"k\ud83d": ["a\udc00", None]}
    calls = [{"id": "c1", "function": {"name": "f", "arguments": "x\ud83d"}}]
    await db.create_session("s", "cli", model_config=lone)
    await db.append_messages_batch(
        "s",
        [
            user([{"type": "text", "text": "a\ud83d"}], display_metadata=lone),
            assistant("b\ud83d", tool_calls=calls, reasoning_details=[lone]),
        ],
    )
    exported = await db.export_all()
    assert exported[0]["messages"][0]["content"][0]["text"] == "a\ud83d"
    assert exported[0]["messages"][1]["tool_calls"] == calls
    for driver in ("sqlite", "postgresql+asyncpg"):
        async with SessionDB(make_location(driver)) as other:
            result = await other.import_sessions(json.loads(json.dumps(exported)))
            assert result["ok"], result
            assert comparable(await other.export_all()) == comparable(exported)


class RandomStore:
    """A store with random sessions, made by public calls."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def text(self) -> str:
        signs = ["a", "é", "桂", "\0", "😀", " ", "\n", "\x00json:", "\x01json:", '"', "\\"]
        return "".join(self.random.choices(signs, k=self.random.randrange(6)))

    def value(self) -> Any:
        number = self.random.random()
        options: list[Any] = [None, "", [], {}, self.text(), [self.text(), number], {"k": number}]
        return self.random.choice(options)

    def message(self) -> dict[str, Any]:
        role = self.random.choice(["user", "assistant", "tool", "system", "odd"])
        message: dict[str, Any] = {
            "role": role,
            "content": self.value(),
            "timestamp": self.random.choice([None, -5.0, 0.0, 1.5e9 + self.random.random()]),
            "token_count": self.random.choice([None, 0, 2**40]),
            "api_content": self.random.choice([None, self.text()]),
            "display_metadata": self.random.choice([None, {"t": self.text()}]),
        }
        texts = ("tool_call_id", "tool_name", "platform_message_id", "finish_reason")
        message |= {name: self.text() for name in texts if self.random.random() < 0.3}
        if role == "assistant":
            message |= {
                "tool_calls": self.value(),
                "reasoning": self.random.choice([None, self.text()]),
                "reasoning_details": self.value(),
                "codex_message_items": self.value(),
            }
        return message

    async def fill(self, db: Any) -> None:
        for number in range(self.random.randrange(1, 7)):
            session_id = f"s{number}"
            parent = self.random.choice([None, *(f"s{n}" for n in range(number))])
            await db.create_session(
                session_id,
                self.random.choice(["cli", "cron", "telegram"]),
                parent_session_id=parent,
                system_prompt=self.random.choice([None, "", "p", self.text()]),
                model_config=self.random.choice([None, {"k": self.text()}]),
            )
            count = self.random.randrange(6)
            await db.append_messages_batch(session_id, [self.message() for _ in range(count)])
            if self.random.random() < 0.5:
                await db.end_session(session_id, self.random.choice(["compression", "done"]))
            if self.random.random() < 0.5:
                await db.set_session_archived(session_id, True)


async def test_random_stores(db: Any, make_location: Callable[..., str]) -> None:
    """Through JSON text, into both databases, and back into the store."""
    others = [SessionDB(make_location(driver)) for driver in ("sqlite", "postgresql+psycopg")]
    for seed in range(8):
        await RandomStore(seed).fill(db)
        exported = await db.export_all()
        ids = [session["id"] for session in exported]
        payload = json.loads(json.dumps(exported))
        copies = []
        for store in others:
            assert (await store.import_sessions(payload))["detached"] == 0
            copies.append(await store.export_all())
            assert comparable(copies[-1]) == comparable(exported), seed
            assert await store.delete_sessions(ids) == len(ids)
        without_ids = [
            [{**s, "messages": [{**m, "id": 0} for m in s["messages"]]} for s in copy]
            for copy in copies
        ]
        assert without_ids[0] == without_ids[1], "also in order and derived fields"
        await db.delete_sessions(ids)
        assert (await db.import_sessions(copies[0]))["imported"] == len(ids)
        assert comparable(await db.export_all()) == comparable(exported)
        assert (await db.import_sessions(payload))["skipped"] == len(ids)
        await db.delete_sessions(ids)
        for session in exported:
            assert session_markdown(session).startswith("# ")
    for store in others:
        await store.close()
