"""What each data step makes of rows that exist, and that doing it twice makes no difference."""

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.migrations.revisions import Database, module_of, schema_on

DRIVERS = ["sqlite", "postgresql+asyncpg"]


@pytest.fixture(params=DRIVERS)
def database(request: pytest.FixtureRequest, make_location: Callable[..., str]) -> Database:
    return Database(make_location(request.param, empty=True))


async def add_session(database: Database, session_id: str, **values: Any) -> None:
    row = {"id": session_id, "source": "cli", "started_at": 1.0, **values}
    names = ", ".join(row)
    await database.run(
        f"INSERT INTO sessions ({names}) VALUES ({', '.join(f':{name}' for name in row)})", **row
    )


async def add_message(database: Database, session_id: str, role: str, content: str = "x") -> None:
    await database.run(
        "INSERT INTO messages (session_id, role, content, timestamp) "
        "VALUES (:session_id, :role, :content, 1)",
        session_id=session_id,
        role=role,
        content=content,
    )


async def test_duplicate_titles_are_numbered(database: Database) -> None:
    await database.upgrade("0003")
    for session_id, started_at, title in [
        ("late", 3.0, "Garden"),
        ("first", 1.0, "Garden"),
        ("taken", 2.0, "Garden #2"),
        ("latest", 4.0, "Garden"),
        ("single", 5.0, "Other"),
        ("none", 6.0, None),
        ("nothing", 7.0, None),
    ]:
        await add_session(database, session_id, started_at=started_at, title=title)
    await database.upgrade("0004")
    titles = dict(await database.rows("SELECT id, title FROM sessions"))
    assert titles == {
        "first": "Garden",
        "taken": "Garden #2",
        "late": "Garden #3",
        "latest": "Garden #4",
        "single": "Other",
        "none": None,
        "nothing": None,
    }


async def test_missing_index_is_restored_by_rank(database: Database) -> None:
    await database.upgrade("0025")
    await database.run("DROP INDEX idx_sessions_title_unique")
    for session_id, started_at, title, source in [
        ("derived", 1.0, "A", "derived"),
        ("user", 3.0, "A", "user"),
        ("unknown", 2.0, "A", None),
        ("llm old", 1.0, "B", "llm"),
        ("llm new", 2.0, "B", "llm"),
        ("newest", 3.0, "B", "derived"),
    ]:
        await add_session(
            database, session_id, started_at=started_at, title=title, title_source=source
        )
    await database(lambda connection: module_of("0004").schema(schema_on(connection)))
    assert dict(await database.rows("SELECT id, title FROM sessions")) == {
        "derived": "A #2",
        "unknown": "A",
        "user": "A #3",
        "llm old": "B #2",
        "llm new": "B",
        "newest": "B #3",
    }


async def test_messages_without_a_state_become_visible(database: Database) -> None:
    await database.upgrade("0013")
    await add_session(database, "s")
    await database.run("ALTER TABLE messages ADD COLUMN active INTEGER")
    await add_message(database, "s", "user")
    await database.upgrade("0014")
    await add_message(database, "s", "user")
    assert await database.rows("SELECT active FROM messages") == [(1,), (1,)]
    with pytest.raises(Exception, match=re.compile("not.null", re.I)):
        await database.run("UPDATE messages SET active = NULL")


PARENTS = {
    "live": {},
    "compressed": {"end_reason": "compression", "ended_at": 5.0},
    "branched": {"end_reason": "branched", "ended_at": 5.0},
    "reset": {"end_reason": "session_reset", "ended_at": 5.0},
}
CHILDREN: dict[str, tuple[dict[str, Any], str | None]] = {
    "delegate": ({"parent_session_id": "live"}, "live"),
    "configured": ({"parent_session_id": "live", "model_config": '{"a": [1, null]}'}, "live"),
    "has marker": ({"parent_session_id": "live", "model_config": '{"_delegate_from": "x"}'}, "x"),
    "branch": ({"parent_session_id": "live", "model_config": '{"_branched_from": "live"}'}, None),
    "new start": ({"parent_session_id": "live", "model_config": '{"_reset_from": "live"}'}, None),
    "continuation": ({"parent_session_id": "compressed", "started_at": 6.0}, None),
    "late branch": ({"parent_session_id": "branched", "started_at": 5.0}, None),
    "before branch": ({"parent_session_id": "branched", "started_at": 4.0}, "branched"),
    "without key": ({"parent_session_id": "reset", "started_at": 6.0}, "reset"),
    "undecodable": ({"parent_session_id": "live", "model_config": "{oops"}, None),
    "list": ({"parent_session_id": "live", "model_config": "[1]"}, None),
    "orphan": ({"ended_at": 2.0}, "__orphaned__"),
    "still open": ({}, None),
    "of a user": ({"ended_at": 2.0, "user_id": "u"}, None),
    "scheduled": ({"ended_at": 2.0, "source": "cron"}, None),
    "titled": ({"ended_at": 2.0, "title": "T"}, None),
    "long": ({"ended_at": 2.0, "message_count": 26}, None),
}


async def test_delegated_work_is_marked(database: Database) -> None:
    await database.upgrade("0015")
    for session_id, values in PARENTS.items():
        await add_session(database, session_id, **values)
    for session_id, (values, _) in CHILDREN.items():
        await add_session(database, session_id, **values)
        await add_message(database, session_id, "tool")
    before = dict(await database.rows("SELECT id, model_config FROM sessions"))
    await database.upgrade("0016")
    after = dict(await database.rows("SELECT id, model_config FROM sessions"))
    markers = {key: marker_in(after[key]) for key in CHILDREN}
    assert markers == {key: marker for key, (_, marker) in CHILDREN.items()}
    assert all(after[key] is None for key in PARENTS)
    assert after["undecodable"] == "{oops" and after["list"] == "[1]"
    assert json.loads(after["configured"])["a"] == [1, None]
    await database.fill_again("0016")
    assert dict(await database.rows("SELECT id, model_config FROM sessions")) == after
    await database.downgrade("0015")
    reverted = dict(await database.rows("SELECT id, model_config FROM sessions"))
    assert marker_in(reverted["delegate"]) is None
    assert {k for k in before if marker_in(reverted[k])} == {"has marker", "orphan"}


def marker_in(config: str | None) -> str | None:
    try:
        decoded = json.loads(config or "{}")
    except ValueError:
        return None
    return decoded.get("_delegate_from") if isinstance(decoded, dict) else None


async def test_short_chats_of_a_store_without_titles_are_no_orphans(database: Database) -> None:
    await database.upgrade("0002")
    await add_session(database, "chat", ended_at=2.0)
    await add_message(database, "chat", "tool")
    await database.upgrade("0016")
    assert await database.rows("SELECT model_config FROM sessions") == [(None,)]


async def test_peers_come_from_the_file_that_is_named(database: Database, tmp_path: Path) -> None:
    file = tmp_path / "sessions.json"
    origin = {"chat_id": 7, "thread_id": "t"}
    entries = {
        "key-1": {"session_id": "a", "origin": origin, "display_name": "Ann", "chat_type": "dm"},
        "key-2": {"session_id": "b", "session_key": "own", "memory_flushed": True},
        "_meta": {"session_id": "c", "display_name": "no"},
        "other": "text",
    }
    file.write_text(json.dumps(entries))
    await database.upgrade("0017")
    for session_id in "abc":
        await add_session(database, session_id)
    await database.run("UPDATE sessions SET chat_type = 'group' WHERE id = 'a'")
    await database.upgrade("0018", sessions_json=str(file))
    query = (
        "SELECT session_key, chat_id, thread_id, chat_type, display_name, origin_json, "
        "expiry_finalized FROM sessions ORDER BY id"
    )
    assert await database.rows(query) == [
        ("key-1", "7", "t", "group", "Ann", json.dumps(origin), 0),
        ("own", None, None, None, None, None, 1),
        (None, None, None, None, None, None, 0),
    ]
    await database.downgrade("0017", force=True)
    with pytest.raises(Exception, match=r"sessions_json: .* can't be read"):
        await database.upgrade("0018", sessions_json=str(tmp_path / "missing.json"))


USAGE = "session_id, model, billing_provider, billing_base_url, billing_mode"


async def test_usage_is_attributed_to_the_model_of_a_session(database: Database) -> None:
    await database.upgrade("0019")
    await add_session(
        database,
        "used",
        model="m",
        billing_provider="p",
        input_tokens=5,
        output_tokens=None,
        api_call_count=2,
        actual_cost_usd=0.5,
        ended_at=9.0,
    )
    await add_session(database, "unknown", cache_read_tokens=2**40)
    await add_session(database, "unused", model="m", api_call_count=1)
    await database.upgrade("0020")
    query = (
        f"SELECT {USAGE}, api_call_count, input_tokens, output_tokens, cache_read_tokens, "
        "estimated_cost_usd, actual_cost_usd, cost_status, first_seen, last_seen "
        "FROM session_model_usage ORDER BY session_id"
    )
    expected = [
        ("unknown", "unknown", "", "", "", 0, 0, 0, 2**40, 0.0, 0.0, None, 1.0, 1.0),
        ("used", "m", "p", "", "", 2, 5, 0, 0, 0.0, 0.5, None, 1.0, 9.0),
    ]
    assert await database.rows(query) == expected
    await database.run("UPDATE session_model_usage SET model = 'real' WHERE session_id = 'used'")
    await database.fill_again("0020")
    assert [row[1] for row in await database.rows(query)] == ["unknown", "real"]
    await database.upgrade("0031")
    await database.run("UPDATE sessions SET model = 'other'")
    await database.fill_again("0020")
    assert [row[1] for row in await database.rows(query)] == ["unknown", "real"]


async def test_usage_of_tasks_is_summed_and_parted(database: Database) -> None:
    await database.upgrade("0022")
    await add_session(database, "s")
    for task, tokens, seen in [("", 2**40, 3.0), ("title", 5, 1.0), ("vision", 7, 2.0)]:
        await database.run(
            "INSERT INTO session_model_usage (session_id, model, task, input_tokens, first_seen, "
            "last_seen, cost_status) VALUES ('s', 'm', :task, :tokens, :seen, :seen, 'known')",
            task=task,
            tokens=tokens,
            seen=seen,
        )
    with pytest.raises(Exception, match=r"auxiliary tasks.*force=true"):
        await database.downgrade("0021")
    await database.downgrade("0021", force=True)
    columns = "input_tokens, first_seen, last_seen, cost_status"
    summed = [(2**40 + 12, 1.0, 3.0, "known")]
    assert await database.rows(f"SELECT {columns} FROM session_model_usage") == summed
    await database.upgrade("0022")
    assert await database.rows(f"SELECT task, {columns} FROM session_model_usage") == [
        ("", *summed[0])
    ]
    await database.run("DELETE FROM session_model_usage")


async def test_early_keys_are_healed_and_rows_summed(make_location: Callable[..., str]) -> None:
    database = Database(make_location("sqlite", empty=True))
    await database.upgrade("0021")
    await add_session(database, "s")
    await database.run(
        "DROP TABLE session_model_usage",
        "CREATE TABLE session_model_usage (session_id TEXT NOT NULL, model TEXT NOT NULL, "
        "billing_provider TEXT NOT NULL DEFAULT '', billing_base_url TEXT, "
        "input_tokens INTEGER NOT NULL DEFAULT 0, output_tokens INTEGER NOT NULL DEFAULT 0, "
        "api_call_count INTEGER NOT NULL DEFAULT 0, cache_read_tokens INTEGER NOT NULL DEFAULT 0, "
        "cache_write_tokens INTEGER NOT NULL DEFAULT 0, task TEXT, "
        "reasoning_tokens INTEGER NOT NULL DEFAULT 0, estimated_cost_usd REAL NOT NULL DEFAULT 0, "
        "first_seen REAL, last_seen REAL)",
        "INSERT INTO session_model_usage (session_id, model, billing_base_url, task, input_tokens) "
        "VALUES ('s', 'm', NULL, NULL, 3), ('s', 'm', '', '', 4), ('s', 'n', NULL, 'x', 5)",
        "DROP TABLE gateway_routing",
        "CREATE TABLE gateway_routing (session_key TEXT, entry_json TEXT NOT NULL, "
        "updated_at REAL NOT NULL, scope TEXT)",
        "INSERT INTO gateway_routing VALUES "
        "('k', 'old', 1, ''), ('k', 'new', 2, NULL), ('j', 'tie', 1, ''), ('j', 'tie', 1, '')",
    )

    def replay(connection: Any) -> None:
        for revision in ("0019", "0020", "0022"):
            module_of(revision).schema(schema_on(connection))

    await database(replay)
    assert await database.rows(
        f"SELECT {USAGE}, task, input_tokens FROM session_model_usage ORDER BY model"
    ) == [("s", "m", "", "", "", "", 7), ("s", "n", "", "", "", "x", 5)]
    assert await database.rows(
        "SELECT scope, session_key, entry_json FROM gateway_routing ORDER BY 2"
    ) == [("", "j", "tie"), ("", "k", "new")]


async def test_prompts_are_shared_and_come_back(database: Database) -> None:
    await database.upgrade("0024")
    prompts = {"a": "温室 be kind", "b": "温室 be kind", "c": "", "d": None}
    for session_id, prompt in prompts.items():
        await add_session(database, session_id, system_prompt=prompt)
    lone = not database.is_postgres  # text that is no UTF-8 exists on SQLite only
    if lone:
        await add_session(database, "e")
        await database.run(
            "UPDATE sessions SET system_prompt = CAST(x'eda080' AS TEXT) WHERE id='e'"
        )
    await database.upgrade("0025")
    texts = {hashlib.sha256(text.encode()).hexdigest(): text for text in ("温室 be kind", "")}
    assert dict(await database.rows("SELECT hash, prompt FROM system_prompts")) == texts
    query = "SELECT id, system_prompt_hash FROM sessions WHERE id <= 'd' ORDER BY id"
    hashes = {text: key for key, text in texts.items()}
    assert await database.rows(query) == [
        (key, None if text is None else hashes[text]) for key, text in prompts.items()
    ]
    inline = "SELECT id FROM sessions WHERE system_prompt IS NOT NULL"
    assert await database.rows(inline) == ([("e",)] if lone else [])
    await database.fill_again("0025")
    await database.downgrade("0024")
    assert (
        dict(await database.rows("SELECT id, system_prompt FROM sessions WHERE id <= 'd'"))
        == prompts
    )


async def test_each_message_gets_an_id_of_its_own(database: Database) -> None:
    await database.upgrade("0030")
    await add_session(database, "s")
    for _ in range(8):
        await add_message(database, "s", "user")
    await database.run("DELETE FROM messages WHERE id IN (2, 5)")
    await database.upgrade("0031")
    uids = [row[0] for row in await database.rows("SELECT message_uid FROM messages ORDER BY id")]
    assert len(set(uids)) == 6
    assert all(re.fullmatch("[0-9a-f]{32}", uid) for uid in uids)
    await database.run("UPDATE messages SET message_uid = NULL WHERE id = 3")
    await database.fill_again("0031")
    again = [row[0] for row in await database.rows("SELECT message_uid FROM messages ORDER BY id")]
    assert again[0] == uids[0] and again[2:] == uids[2:] and again[1] not in (None, uids[1])
    assert await database.rows("SELECT session_id, last_active FROM hermes_session_recency") == [
        ("s", 1.0)
    ]
    keys = dict(await database.rows("SELECT key, value FROM state_meta"))
    assert keys["message_uid_backfill"] == "1" and len(keys["store_instance_id"]) == 36
