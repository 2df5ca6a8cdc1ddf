"""Importing sessions: usage 4.4, and the field reports of that kind."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from hermes_orm.repositories.portability import entries
from tests.contract.stories import Story, ids
from tests.contract.turns import assistant, contents, tool, user

NOTHING = {"ok": False, "imported": 0, "skipped": 0, "detached": 0}


def done(*imported: str, skipped: tuple[str, ...] = (), detached: int = 0) -> dict[str, Any]:
    """The result of an import."""
    return {
        "ok": True,
        "imported": len(imported),
        "skipped": len(skipped),
        "detached": detached,
        "errors": [],
        "imported_ids": list(imported),
        "skipped_ids": list(skipped),
    }


async def parents(db: Any) -> dict[str, Any]:
    return {session["id"]: session["parent_session_id"] for session in await db.export_all()}


async def test_only_lists_of_500(db: Any) -> None:
    for wrong in ({"id": "a"}, None, "a", ({"id": "a"},)):
        with pytest.raises(ValueError, match=r"^sessions must be a list$"):
            await db.import_sessions(wrong)
    many = [{"id": f"s{number}"} for number in range(501)]
    with pytest.raises(ValueError, match=r"^sessions must contain at most 500 entries$"):
        await db.import_sessions(many)
    assert await db.import_sessions([]) == done()
    assert (await db.import_sessions(many[:500]))["imported"] == 500
    assert await db.session_count() == 500


CIRCULAR: dict[str, Any] = {"id": "a"}
CIRCULAR["messages"] = [{"role": "user", "content": CIRCULAR}]
TEXTS = (
    "parent_session_id",
    *("source", "user_id", "model", "system_prompt", "end_reason", "cwd", "git_branch"),
    *("git_repo_root", "billing_provider", "billing_base_url", "billing_mode", "cost_status"),
    *("cost_source", "pricing_version", "title"),
)
MESSAGE_TEXTS = (
    *("tool_call_id", "tool_name", "effect_disposition", "finish_reason", "reasoning"),
    *("reasoning_content", "platform_message_id", "message_id"),
)
NO_INTEGERS: tuple[Any, ...] = ("x", [], float("nan"), float("inf"), 2**70)
ROLE = "messages[1].role must be a non-empty string"
REJECTED: list[tuple[Any, str]] = [
    ("str", "session must be an object"),
    (None, "session must be an object"),
    ({}, "session id is required"),
    ({"id": " "}, "session id is required"),
    ({"id": 0}, "session id is required"),
    ({"id": "a", "messages": {"role": "user"}}, "messages must be a list"),
    ({"id": "a", "messages": [user("x"), "y"]}, "messages must contain only objects"),
    ({"id": "a", "k": {1, 2}}, "session must be JSON serializable"),
    ({"id": "a", "k": "\ud83d"}, "session must be JSON serializable"),
    ({"id": "\ud83d"}, "session must be JSON serializable"),
    ({"id": "a", "messages": [user("\ud83d")]}, "session must be JSON serializable"),
    ({"id": "a", "messages": [user(b"raw")]}, "session must be JSON serializable"),
    (CIRCULAR, "session must be JSON serializable"),
    ({"id": "a\0b"}, "session id must not contain U+0000"),
    ({"id": "a", "model_config": "{"}, "model_config must be valid JSON"),
    ({"id": "a", "model_config": ""}, "model_config must be valid JSON"),
    ({"id": "a", "model_config": "[1]"}, "model_config must be a JSON object"),
    ({"id": "a", "model_config": "null"}, "model_config must be a JSON object"),
    ({"id": "a", "model_config": 5}, "model_config must be a JSON object"),
    *(({"id": "a", name: 5}, f"{name} must be a string") for name in TEXTS),
    ({"id": "a", "title": 5, "model": []}, "model must be a string"),
    ({"id": "a", "title": "t" * 101}, "Title too long: 101 characters, at most 100; shorten it"),
    *(
        ({"id": "a", "messages": [user("x"), message]}, ROLE)
        for message in ({}, {"role": None}, {"role": ""}, {"role": 5}, {"role": ["user"]})
    ),
    *(
        ({"id": "a", "messages": [user("x", **{name: 5})]}, f"{name} must be a string")
        for name in MESSAGE_TEXTS
    ),
    *(
        ({"id": "a", "messages": [user("x", token_count=v)]}, "token_count must be an integer")
        for v in NO_INTEGERS
    ),
]


async def test_reasons(db: Any) -> None:
    """Usage 4.4: the first fault of each entry, and nothing is stored."""
    good = {"id": "good", "messages": [user("x")]}
    result = await db.import_sessions([good, *(entry for entry, _ in REJECTED)])
    items = result.pop("errors")
    assert result == NOTHING
    assert [(item["index"], item["error"]) for item in items] == [
        (index, error) for index, (_, error) in enumerate(REJECTED, 1)
    ]
    assert ["session_id" in item for item in items[:6]] == [False] * 5 + [True]
    assert items[5]["session_id"] == "a"
    assert await db.session_count() == 0


async def test_limits(db: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Usage 4.4: sizes are those of compact JSON in UTF-8, to the byte."""
    entry = {"id": "é", "k": [1, "ü"], "messages": [user("ä"), assistant("b", "c1"), user("c")]}
    size = len(json.dumps(entry, ensure_ascii=False, separators=(",", ":")).encode())
    cases = (
        ("SESSION_BYTES", size, "session exceeds the import size limit"),
        ("IMPORT_BYTES", 2 * size, "import exceeds the total size limit"),
        ("MOST_MESSAGES", 3, "messages exceeds the per-session import limit"),
        ("MOST_MESSAGES_IN_ALL", 6, "messages exceeds the total import limit"),
    )
    for name, limit, error in cases:
        for allowed, refused in ((limit, 0), (limit - 1, 1)):
            with monkeypatch.context() as patched:
                patched.setattr(entries, name, allowed)
                result = await db.import_sessions([entry, {**entry, "id": "ë"}])
            assert result["ok"] == (not refused), (name, allowed)
            assert {item["error"] for item in result["errors"]} <= {error}
            is_of_each = name in ("SESSION_BYTES", "MOST_MESSAGES")
            assert len(result["errors"]) == refused * (2 if is_of_each else 1)
            await db.delete_sessions(["é", "ë"])
    assert (entries.MOST_SESSIONS, entries.MOST_MESSAGES) == (500, 10_000)
    assert entries.MOST_MESSAGES_IN_ALL == 50_000
    assert (entries.SESSION_BYTES, entries.IMPORT_BYTES) == (5 * 1024**2, 25 * 1024**2)


async def test_entries_that_fail_later_count_their_size(db: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(entries, "IMPORT_BYTES", 60)
    failing = {"id": "a", "model": 5, "k": "x" * 20}
    result = await db.import_sessions([failing, {"id": "b"}, {"id": "c", "k": "y" * 10}])
    assert [item["error"] for item in result["errors"]] == [
        "model must be a string",
        "import exceeds the total size limit",
    ]


async def test_same_id_twice(db: Any) -> None:
    """Usage 31: only an accepted entry makes the next one a duplicate."""
    result = await db.import_sessions([{"id": "a"}, {"id": " a "}])
    error = {"index": 1, "error": "duplicate session id", "session_id": "a"}
    assert result == {**NOTHING, "errors": [error]}
    result = await db.import_sessions([{"id": "a", "model": 5}, {"id": "a"}])
    assert [item["index"] for item in result["errors"]] == [0]
    assert await db.session_count() == 0


async def test_parents(db: Any) -> None:
    """Usage 32."""
    payload = [
        {"id": "m", "parent_session_id": "absent", "messages": [user("x")]},
        {"id": "a", "parent_session_id": "b"},
        {"id": "b", "parent_session_id": "a"},
    ]
    assert await db.import_sessions(payload) == done("m", "a", "b", detached=2)
    assert await parents(db) == {"m": None, "a": None, "b": "a"}
    assert await db.import_sessions(payload) == done(skipped=("m", "a", "b"))
    assert (await db.get_session("m"))["message_count"] == 1
    more = [
        {"id": "grandchild", "parent_session_id": "child"},
        {"id": "child", "parent_session_id": " b "},
        {"id": "self", "parent_session_id": "self"},
        {"id": "to ring", "parent_session_id": "r1"},
        {"id": "r1", "parent_session_id": "r2"},
        {"id": "r2", "parent_session_id": "r3"},
        {"id": "r3", "parent_session_id": "r1"},
        {"id": "none", "parent_session_id": ""},
        {"id": "odd", "parent_session_id": "b\0"},
    ]
    result = await db.import_sessions(more)
    assert result == done(*ids(more), detached=3)
    found = await parents(db)
    assert {key: found[key] for key in ids(more)} == {
        "grandchild": "child",
        "child": "b",
        "self": None,
        "to ring": "r1",
        "r1": None,
        "r2": "r3",
        "r3": "r1",
        "none": None,
        "odd": None,
    }


async def test_loose_values(db: Any, clock: Any) -> None:
    """Usage 33."""
    entry = {
        "id": " sp ",
        "source": "",
        "started_at": "12.5",
        "output_tokens": "x",
        "archived": "no",
        "messages": [{"role": "user", "content": "hi", "active": 0}],
    }
    before = json.dumps(entry)
    assert await db.import_sessions([entry]) == done("sp")
    assert json.dumps(entry) == before
    session = await db.export_session("sp")
    assert session["source"] == "import"
    assert (session["started_at"], session["output_tokens"], session["archived"]) == (12.5, 0, 1)
    (message,) = session["messages"]
    assert (message["active"], message["compacted"], message["timestamp"]) == (1, 0, clock.time)
    assert session["message_count"] == 1
    assert await db.import_sessions([{"id": 7, "messages": None}]) == done("7")


async def test_numbers_and_times(db: Any, clock: Any) -> None:
    """Usage 4.4 and field report B1: what is no number, or no time, never reaches the database."""
    nan, inf, now = float("nan"), float("inf"), clock.time
    no_times: list[Any] = [8.4e252, inf, -inf, nan, 1700000000000, "not-a-time", None, []]
    no_times.append("2026-01-02T03:04:05Z")
    no_numbers: list[Any] = ["x", nan, inf, None, []]
    times: list[tuple[Any, float]] = [
        *((value, now) for value in no_times),
        *((-5, -5.0), ("1700000000.5", 1700000000.5), (True, 1.0)),
    ]
    payload = [
        {
            "id": f"s{number}",
            "started_at": time,
            "ended_at": time,
            "messages": [user("x", timestamp=time)],
        }
        for number, (time, _) in enumerate(times)
    ]
    assert (await db.import_sessions(payload))["ok"]
    for number, (_, stored) in enumerate(times):
        session = await db.export_session(f"s{number}")
        assert session["started_at"] == session["messages"][0]["timestamp"] == stored
        assert session["ended_at"] == (None if stored == now else stored)
    counters = ("input_tokens", "cache_read_tokens", "reasoning_tokens", "api_call_count")
    costs = ("estimated_cost_usd", "actual_cost_usd")
    cases: list[tuple[Any, int, float | None]] = [
        *((value, 0, None) for value in no_numbers),
        *(("7", 7, 7.0), (2**40, 2**40, float(2**40)), (10**400, 0, None), (True, 1, 1.0)),
    ]
    for number, (value, count, cost) in enumerate(cases):
        entry = {"id": f"n{number}", **dict.fromkeys((*counters, *costs), value)}
        assert (await db.import_sessions([entry]))["ok"]
        session = await db.get_session(f"n{number}")
        assert [session[key] for key in counters] == [count] * 4
        assert [session[key] for key in costs] == [cost] * 2


async def test_titles(db: Any) -> None:
    """Usage 34: taken in the store or in front of it in the payload; cleaned as everywhere."""
    await db.create_session("s", "cli")
    await db.set_session_title("s", "Taken")
    error = "title is already in use"
    result = await db.import_sessions(
        [
            {"id": "a", "title": " Taken\u200b "},
            {"id": "b", "title": "New  one"},
            {"id": "c", "title": "New one"},
            {"id": "d", "title": " "},
            {"id": "e"},
            {"id": "s", "title": "Taken"},
        ]
    )
    assert result.pop("errors") == [
        {"index": 0, "error": error, "session_id": "a"},
        {"index": 2, "error": error, "session_id": "c"},
    ]
    assert result == NOTHING
    payload = [
        {"id": "b", "title": "New  one"},
        {"id": "d", "title": " "},
        {"id": "s", "title": "Taken"},
    ]
    assert await db.import_sessions(payload) == done("b", "d", skipped=("s",))
    assert await db.get_session_title("b") == "New one"
    assert await db.get_session_title("d") is None


async def test_every_rejected_record_is_reported(db: Any) -> None:
    """Usage 43, field report J5."""
    await db.create_session("s", "cli")
    await db.set_session_title("s", "taken")
    good = {"id": "good"}
    payload = [
        *(good, {"id": None}, "str", {"id": "q", "messages": [{"role": None}]}),
        {"id": "z", "title": "taken"},
    ]
    result = await db.import_sessions(payload)
    assert result == {
        **NOTHING,
        "errors": [
            {"index": 1, "error": "session id is required"},
            {"index": 2, "error": "session must be an object"},
            {
                "index": 3,
                "error": "messages[0].role must be a non-empty string",
                "session_id": "q",
            },
            {"index": 4, "error": "title is already in use", "session_id": "z"},
        ],
    }
    rejected = {item["index"] for item in result["errors"]}
    kept = [entry for index, entry in enumerate(payload) if index not in rejected]
    assert await db.import_sessions(kept) == done("good")


async def test_messages_follow_the_batch_rules(db: Any, clock: Any) -> None:
    messages = [
        user([{"type": "text", "text": "a"}], message_id="m1", id=99, session_id="other"),
        assistant(None, "c1", "c2", reasoning_details='[{"t": 1}]', reasoning="thought"),
        tool("r\0", "c1", tool_name="t\0", reasoning="dropped", timestamp=5),
        user("later", api_content="sent", display_kind="k", display_metadata={"k": "v"}),
    ]
    assert (await db.import_sessions([{"id": "s", "messages": messages}]))["ok"]
    session = await db.export_session("s")
    first, second, third, fourth = session["messages"]
    assert (first["content"], first["platform_message_id"]) == (messages[0]["content"], "m1")
    assert first["session_id"] == "s"
    assert json.loads(second["reasoning_details"]) == [{"t": 1}]
    assert (second["reasoning"], third["reasoning"]) == ("thought", None)
    assert (third["content"], third["tool_name"], third["timestamp"]) == ("r\0", "t\ufffd", 5.0)
    assert fourth["display_metadata"] == {"k": "v"}
    times = [message["timestamp"] for message in (first, second, fourth)]
    assert times == sorted(set(times))
    assert times[0] == clock.time
    assert (session["message_count"], session["tool_call_count"]) == (4, 2)
    assert session["last_activity_at"] is None
    await db.append_message("s", "user", "goes on")
    assert (await db.get_session("s"))["message_count"] == 5


async def test_imported_sessions_are_found_and_listed(db: Any) -> None:
    payload = [
        {"id": "old", "started_at": 900.0, "messages": [user("needle one", timestamp=100.0)]},
        {
            "id": "new",
            "started_at": 50.0,
            "messages": [user("x", timestamp=400.0), user("needle 桂林", timestamp=300.0)],
        },
        {"id": "empty", "started_at": 200.0},
        {
            "id": "closed",
            "started_at": 1.0,
            "ended_at": 2.0,
            "end_reason": "compression",
            "messages": [user("needle", timestamp=1.5)],
        },
    ]
    assert (await db.import_sessions(payload))["ok"]
    assert len(await db.search_messages("needle")) == 3
    assert len(await db.search_messages("桂林")) == 1
    assert [(session["id"], session["last_active"]) for session in await db.export_all()] == [
        ("new", 400.0),
        ("empty", 200.0),
        ("old", 100.0),
        ("closed", 1.5),
    ]
    assert contents(await db.get_messages("closed")) == ["needle"]


async def test_message_with_more_words_than_are_indexed(db: Any) -> None:
    words = " ".join(f"w{number:07}" for number in range(150_000))
    payload = [
        {"id": "s", "messages": [user("needle before"), user(words), user("needle behind")]},
        {"id": "t", "messages": [user("needle elsewhere")]},
    ]
    assert (await db.import_sessions(payload))["ok"]
    assert contents(await db.get_messages("s"))[1] == words
    assert len(await db.search_messages("needle")) == 3


async def test_all_or_nothing(db: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure or a cancellation leaves nothing; so does a transaction that is rolled back."""
    payload = [
        {"id": f"s{number}", "system_prompt": "p", "messages": [user("x")] * 20}
        for number in range(20)
    ]
    transcript = type(db.database.dialect.transcript)
    with monkeypatch.context() as broken:

        def fail(*args: Any) -> None:
            raise ValueError("broken")

        broken.setattr(transcript, "fill", fail)
        with pytest.raises(ValueError, match="broken"):
            await db.import_sessions(payload)
    assert await db.session_count() == 0
    for steps in range(0, 60, 7):
        task = asyncio.create_task(db.import_sessions(payload))
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        done_before = await asyncio.gather(task, return_exceptions=True)
        stored = await db.session_count()
        assert stored in (0, 20)
        assert stored == 0 or len(await db.get_messages("s19")) == 20, done_before
        await db.delete_sessions([f"s{number}" for number in range(20)])

    async def undone() -> None:
        async with db.transaction() as unit:
            assert (await unit.import_sessions(payload))["ok"]
            assert len(await unit.get_messages("s0")) == 20
            raise KeyError

    with pytest.raises(KeyError):
        await undone()
    assert await db.session_count() == 0
    async with db.transaction() as unit:
        assert (await unit.import_sessions(payload))["ok"]
    assert await db.session_count() == 20


async def test_two_at_once(db: Any, open_store: Callable[..., Any]) -> None:
    """Each session once, whoever comes first."""
    other = open_store()
    payload = [
        {"id": f"s{number}", "title": f"t{number}", "system_prompt": "p", "messages": [user("x")]}
        for number in range(30)
    ]
    results = await asyncio.gather(db.import_sessions(payload), other.import_sessions(payload))
    assert sorted(result["imported"] for result in results) == [0, 30]
    assert sorted(result["skipped"] for result in results) == [0, 30]
    assert {len(session["messages"]) for session in await db.export_all()} == {1}


async def test_deleted_session_comes_back(db: Any) -> None:
    """A tombstone is lifted: usage counts again."""
    await db.create_session("s", "cli")
    await db.delete_session("s")
    await db.import_sessions([{"id": "s", "input_tokens": 1}])
    await db.update_token_counts("s", input_tokens=2)
    assert (await db.get_session("s"))["input_tokens"] == 3


async def test_statements_do_not_grow(db: Any, story: Story, sent: Callable[[], int]) -> None:
    await story.new("above")
    used = []
    for count in (4, 40):
        payload = [
            {
                "id": f"{count} {number}",
                "title": f"{count} {number}",
                "parent_session_id": "above",
                "system_prompt": f"{count} {number}",
                "messages": [user("x")] * 5,
            }
            for number in range(count)
        ]
        sent()
        await db.import_sessions(payload)
        used.append(sent())
    assert used[0] == used[1] <= 8
