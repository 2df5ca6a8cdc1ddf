"""The database of the existing PostgreSQL store is adopted in place, or refused untouched."""

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import IntegrityError

from hermes_orm import SchemaError, SessionDB, migrations
from hermes_orm.dialects.inspection import findings_of, status_of
from hermes_orm.dialects.postgresql.adoption import copies
from hermes_orm.location import locate
from tests.historic.stores import OldStore, as_in_sidecar
from tests.migrations.catalogue import POSTGRES
from tests.raw import Raw

CHECKOUT = Path(__file__).parents[2]
DRIVERS = ["postgresql+asyncpg", "postgresql+psycopg"]


@pytest.fixture(params=DRIVERS)
def driver(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def schema(location: str) -> dict[str, Any]:
    """Return the definitions of all objects; columns in the order of their names."""
    raw = Raw(location)
    found = {name: await raw.fetch(query) for name, query in POSTGRES.items()}
    columns = [row[:2] + row[3:] for row in found["columns"] if "pg.dropped" not in row[1]]
    return {**found, "columns": sorted(columns, key=str)}


async def found(db: Any, query: str) -> list[list[str]]:
    hits = await db.search_messages(query, limit=1000)
    return [list(pair) for pair in sorted({(hit["session_id"], hit["role"]) for hit in hits})]


async def check_contents(db: Any, sidecar: dict[str, Any], raw: Raw) -> None:
    read: list[Any] = []
    for expected in sidecar["sessions"]:
        session = await db.get_session(expected["id"])
        session["model_config"] = json.loads(session["model_config"] or "null")
        assert {key: session[key] for key in expected if key != "last_active"} == {
            key: value for key, value in expected.items() if key != "last_active"
        }
        rows = await db.get_messages(expected["id"])
        read += [as_in_sidecar(row, position=i) for i, row in enumerate(rows, 1)]
    assert read == sidecar["messages"]
    assert dict(await raw.fetch("SELECT session_id, last_active FROM hermes_session_recency")) == {
        session["id"]: session["last_active"] for session in sidecar["sessions"]
    }
    wanted = sidecar["expect_after_upgrade"]
    assert (
        dict(await raw.fetch("SELECT hash, prompt FROM system_prompts"))
        == (wanted["system_prompts"])
    )
    assert await raw.fetch("SELECT id FROM sessions WHERE system_prompt IS NOT NULL") == []
    keys = [key for key in sidecar["session_model_usage"][0] if key != "id"]
    usage = await raw.fetch(
        f"SELECT {', '.join(keys)} FROM session_model_usage ORDER BY first_seen"
    )
    assert [dict(zip(keys, row, strict=True)) for row in usage] == [
        {key: row[key] for key in keys} for row in sidecar["session_model_usage"]
    ]
    for session_id, tip in wanted["compression_tip"].items():
        assert await db.get_compression_tip(session_id) == tip
    for search in sidecar["searches"]:
        assert await found(db, search["query"]) == search["expect"], search["query"]


async def test_first_opening_adopts_and_the_store_is_usable(
    driver: str, make_old: Callable[..., OldStore], make_location: Callable[..., str]
) -> None:
    old = make_old(driver)
    async with SessionDB(old.location) as db:
        await check_contents(db, old.sidecar, old.raw)
        while await db.fts_rebuild_step():
            pass
        await check_contents(db, old.sidecar, old.raw)
    assert await schema(old.location) == await schema(make_location(driver))
    assert await old.raw.fetch("SELECT key FROM state_meta WHERE key LIKE 'postgres%'") == []
    assert await findings_of(locate(old.location), lambda step: None) == []

    async with SessionDB(old.location) as db:
        row_id = await db.append_message("s-cli-0002", "user", [{"type": "text", "text": "蓄水池"}])
        assert row_id == 24
        assert (await db.get_messages("s-cli-0002"))[-1]["content"] == [
            {"type": "text", "text": "蓄水池"}
        ]
        assert await found(db, "蓄水池") == [["s-cli-0002", "user"]]
        listed = [row["id"] for row in await db.list_sessions_rich(order_by_last_active=True)]
        assert listed[0] == "s-cli-0002"
        await db.create_session("x" * 300, "s" * 200)
        assert await db.get_session("x" * 300)


async def test_readers_and_users_of_a_pooler_are_told_that_a_migration_is_required(
    driver: str, make_old: Callable[..., OldStore], hermes_home: Path
) -> None:
    old = make_old(driver)
    before = old.dump()
    assert (await status_of(locate(old.location))).kind == "older"
    async with SessionDB(old.location, read_only=True) as db:
        with pytest.raises(SchemaError, match=r"current schema.* migration is required"):
            await db.get_session("s-cli-0001")
    hermes_home.mkdir()
    (hermes_home / "config.yaml").write_text("database: {postgres: {pooler: true}}")
    async with SessionDB(old.location) as db:
        with pytest.raises(SchemaError, match=r"hermes-orm db upgrade.* on a direct connection"):
            await db.get_session("s-cli-0001")
    assert old.dump() == before
    await migrations.upgrade(old.location)  # that connection is direct
    async with SessionDB(old.location) as db:
        assert await db.get_session("s-cli-0001")


MARKER = "UPDATE state_meta SET value = '{}' WHERE key = 'postgres_storage_version'"
REFUSED = [
    *(
        (MARKER.format(number), MARKER.format(5), "async-hermes-agent 0.20.4.1")
        for number in (1, 2, 3, 4)
    ),
    (MARKER.format(6), MARKER.format(5), "newer"),
    (MARKER.format(0), MARKER.format(5), "unsupported"),
    (MARKER.format("five"), MARKER.format(5), "malformed"),
    (
        "DELETE FROM state_meta",
        "INSERT INTO state_meta VALUES ('postgres_storage_version', '5')",
        "no layout marker.*async-hermes-agent 0.20.4.1",
    ),
    ("UPDATE schema_version SET version = 24", "UPDATE schema_version SET version = 25", "unsupp"),
    ("UPDATE schema_version SET version = 26", "UPDATE schema_version SET version = 25", "unsupp"),
    ("UPDATE schema_version SET version = 99", "UPDATE schema_version SET version = 25", "newer"),
    ("DELETE FROM schema_version", "INSERT INTO schema_version VALUES (25)", "exactly one"),
    (
        "INSERT INTO schema_version VALUES (24)",
        "DELETE FROM schema_version WHERE version = 24",
        "exactly one",
    ),
    (
        "CREATE VIEW titles AS SELECT title FROM sessions",
        "DROP VIEW titles",
        r"view\(s\) titles",
    ),
    (
        "ALTER TABLE sessions RENAME hidden TO concealed",
        "ALTER TABLE sessions RENAME concealed TO hidden",
        r"incomplete table shape \(sessions.hidden",
    ),
    (
        "ALTER TABLE session_turn_leases RENAME TO leases",
        "ALTER TABLE leases RENAME TO session_turn_leases",
        "incomplete table shape",
    ),
]


async def test_what_is_not_layout_5_is_refused_untouched(make_old: Callable[..., OldStore]) -> None:
    old = make_old(DRIVERS[0])
    for change, undo, reason in REFUSED:
        old.run(change)
        before = old.dump()
        async with SessionDB(old.location) as db:
            with pytest.raises(SchemaError, match=reason):
                await db.get_session("s-cli-0001")
        with pytest.raises(SchemaError, match=reason):
            await migrations.upgrade(old.location)
        assert old.dump() == before, reason
        old.run(undo)
    await migrations.upgrade(old.location)


async def test_rows_without_a_session_are_refused_without_showing_them(
    driver: str, make_old: Callable[..., OldStore]
) -> None:
    old = make_old(driver)
    old.run("ALTER TABLE messages DROP CONSTRAINT fk_messages_session_id")
    old.run("UPDATE messages SET session_id = 'secret' WHERE id = 3")
    before = old.dump()
    async with SessionDB(old.location) as db:
        with pytest.raises(IntegrityError, match="fk_messages_session_id") as raised:
            await db.get_session("s-cli-0001")
    assert "secret" not in str(raised.value)
    assert old.dump() == before


async def test_failure_leaves_the_old_store(
    make_old: Callable[..., OldStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    old = make_old(DRIVERS[0])
    before = old.dump()

    def fail(connection: object) -> None:
        raise LookupError("the last step of the adoption")

    monkeypatch.setattr("hermes_orm.dialects.postgresql.adoption.defer_rebuild", fail)
    async with SessionDB(old.location) as db:
        with pytest.raises(LookupError):
            await db.get_session("s-cli-0001")
        assert old.dump() == before
        monkeypatch.undo()
        assert await db.get_session("s-cli-0001")


async def test_processes_that_adopt_at_once_both_succeed(make_old: Callable[..., OldStore]) -> None:
    old = make_old(DRIVERS[0])
    arguments = ["-m", "alembic", "-x", f"url={old.location}", "upgrade", "head"]
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable, *arguments, cwd=CHECKOUT, stderr=asyncio.subprocess.PIPE
        )
        for _ in range(2)
    ]
    outputs = [await process.communicate() for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    async with SessionDB(old.location) as db:
        await check_contents(db, old.sidecar, old.raw)


ODD_ROWS = """
    ALTER TABLE sessions ADD COLUMN mood text;
    DROP INDEX idx_sessions_title_unique;
    CREATE TABLE notes (session_id varchar(255) REFERENCES sessions (id));
    UPDATE sessions SET title = 'Garden irrigation plan', mood = 'calm' WHERE id = 's-tg-0001';
    UPDATE sessions SET system_prompt = 'You water plants.', system_prompt_hash = NULL
     WHERE id = 's-cli-0002';
    INSERT INTO messages (session_id, payload, role, content, timestamp, observed, active,
                          compacted)
    VALUES ('s-tg-0001', '{"content": "[1, 2]"}', 'user', '[1, 2]', 1767225700, 0, 1, 0),
           ('s-tg-0001', '{"content": [1, 2]}', 'user', '[1, 2]', 1767225701, 0, 1, 0),
           ('s-tg-0001', '{"content": {"a": "\\u00e9"}}', 'user', '{"a": "é"}', 1767225702, 0, 1,
            0),
           ('s-tg-0001', '{"content": "told"}', 'user', 'redacted', 1767225703, 0, 1, 0),
           ('s-tg-0001', 'no JSON', 'user', 'kept', 1767225704, 0, 0, 1),
           ('s-tg-0001', '{"content": "x"}', 'user', E'\\x01json:[3]', 1767225705, 0, 1, 0);
    UPDATE session_model_usage SET input_tokens = 2147483647, task = 'title' WHERE id = 1;
    INSERT INTO session_model_usage (
        session_id, model, billing_provider, billing_base_url, billing_mode, task, api_call_count,
        input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, reasoning_tokens,
        estimated_cost_usd, actual_cost_usd, cost_status, first_seen, last_seen, payload)
    VALUES ('s-cli-0001', 'acme/alpha-1', 'acme', 'https://api.acme.example/v1', 'api_key',
            'title', 1, 2147483647, 1, 1, 1, 1, 0.5, 0.25, 'final', 1, 1767225999, '{}'),
           ('s-cli-0001', NULL, NULL, NULL, NULL, '', 1, 1, 1, 1, 1, 1, 0, 0, NULL, 2, 3, '{}');
"""


async def test_nothing_is_lost_of_odd_rows(
    make_old: Callable[..., OldStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    old = make_old(DRIVERS[1])
    old.run(ODD_ROWS)
    monkeypatch.setattr(copies, "CHUNK", 4)
    report = await migrations.adopt(old.location)
    assert (report.version, report.start, report.search) == (25, "0025", "queued")
    assert report.repaired_rows == {
        "structured contents marked": 4,
        "copies of messages kept": 2,
        "copies of sessions kept": 2,
        "usage rows merged": 1,
    }
    async with SessionDB(old.location) as db:
        contents = [row["content"] for row in await db.get_messages("s-tg-0001", True)][4:]
        assert contents == ["[1, 2]", [1, 2], {"a": "é"}, "redacted", "kept", "\x01json:[3]"]
        titles = {
            row["id"]: row["title"]
            for row in await db.list_sessions_rich(
                include_children=True, include_archived=True, project_compression_tips=False
            )
        }
        assert titles["s-cli-0001"] == "Garden irrigation plan"
        assert titles["s-tg-0001"] == "Garden irrigation plan #3"
        session = await db.get_session("s-cli-0002")
        assert session and session["system_prompt"] == "You water plants."
        await db.update_token_counts("s-cli-0001", input_tokens=2**31)
    usage = await old.raw.fetch(
        "SELECT model, task, input_tokens, estimated_cost_usd, cost_status, first_seen, last_seen "
        "FROM session_model_usage WHERE session_id = 's-cli-0001' AND task = 'title'"
    )
    assert usage == [
        ("acme/alpha-1", "title", 2**32 - 2, 0.5125, "final", 1.0, 1767225999.0),
    ]
    query = "SELECT conname FROM pg_constraint WHERE conrelid = 'notes'::regclass"
    assert await old.raw.fetch(query) == [("notes_session_id_fkey",)]
    kept = await old.raw.fetch("SELECT table_name, row_key FROM hermes_adopted_copies ORDER BY 2")
    assert [row[0] for row in kept] == ["messages"] * 2 + ["sessions"] * 2
    assert await old.raw.fetch("SELECT mood FROM sessions WHERE mood IS NOT NULL") == [("calm",)]
