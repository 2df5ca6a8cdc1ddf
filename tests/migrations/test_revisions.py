"""Each revision goes up, down and up; all of them together make what a store creates."""

import json
from argparse import Namespace
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.util import CommandError
from sqlalchemy import Connection

from hermes_orm.dialects import revision_runs
from hermes_orm.dialects.postgresql.delegations_ddl import LEASE_COLUMNS
from hermes_orm.models import Base
from hermes_orm.models.own import ON_DEMAND_TABLES
from tests.migrations.catalogue import differences
from tests.migrations.revisions import Database, module_of, schema_on, script

CHECKOUT = Path(__file__).parents[2]
REVISIONS = [f"{number:04}" for number in range(1, 32)]
FROZEN = Path(__file__).parents[1] / "fixtures/schema"
TRIGRAM = "gin_trgm_ops"
LAYOUTS = {"0001": 1, "0010": 2, "0011": 2, "0023": 2, "0029": 2, "0030": 2}
"""Number of full-text indexes at the revisions that begin a layout."""

STORY = (
    "INSERT INTO sessions (id, source, user_id, started_at, ended_at, system_prompt, input_tokens) "
    "VALUES ('root', 'cli', 'u', 1, 2, 'be kind', 7), ('twin', 'cli', 'u', 2, 3, 'be kind', 0)",
    "INSERT INTO messages (session_id, role, content, tool_name, timestamp) VALUES "
    "('root', 'user', 'where is the needle', NULL, 1), ('root', 'tool', 'in hay', 'find', 2), "
    "('twin', 'user', 'another needle', NULL, 3)",
)
"""What a user of revision 0001 had."""


@pytest.fixture(params=["sqlite", "postgresql+asyncpg"])
def database(request: pytest.FixtureRequest, make_location: Callable[..., str]) -> Database:
    return Database(make_location(request.param, empty=True))


async def revision_of(database: Database) -> list[tuple[object, ...]]:
    return await database.rows(
        "SELECT version_num, version FROM hermes_alembic_version, schema_version"
    )


async def check_search(database: Database) -> None:
    """Fail when an index differs from what it should hold (SQLite)."""
    if database.is_postgres:
        return
    names = "SELECT name FROM sqlite_schema WHERE name IN ('messages_fts', 'messages_fts_trigram')"
    for (name,) in await database.rows(names):
        own_copy = "content=" not in str(
            (await database.rows(f"SELECT sql FROM sqlite_schema WHERE name = '{name}'"))[0][0]
        )
        rank = 0 if own_copy else 1
        await database.run(f"INSERT INTO {name} ({name}, rank) VALUES ('integrity-check', {rank})")
        found = await database.rows(f"SELECT rowid FROM {name} WHERE {name} MATCH 'needle'")
        assert found == [(1,), (3,)], name


def test_revisions_are_one_line() -> None:
    found = list(script().walk_revisions())
    assert [revision.revision for revision in reversed(found)] == REVISIONS
    assert all(revision.doc and revision.module.schema for revision in found)


async def test_each_revision_goes_up_down_and_up(database: Database) -> None:
    await database.upgrade("0001")
    await database.run(*STORY)
    shapes = [await database.shape()]
    for revision in REVISIONS[1:]:
        await database.upgrade(revision)
        shapes.append(await database.shape())
        assert await revision_of(database) == [(revision, int(revision))]
        await check_search(database)
    for revision, expected in reversed(list(zip(REVISIONS, shapes, strict=True))[:-1]):
        await database.downgrade(revision, force=True)
        assert differences(await database.shape(), expected) == [], f"down to {revision}"
        assert await revision_of(database) == [(revision, int(revision))]
        await check_search(database)
    assert await database.rows("SELECT count(*), count(content), max(id) FROM messages") == [
        (3, 3, 3)
    ]
    assert await database.rows("SELECT id, system_prompt FROM sessions ORDER BY id") == [
        ("root", "be kind"),
        ("twin", "be kind"),
    ]
    for revision, expected in zip(REVISIONS[1:], shapes[1:], strict=True):
        await database.upgrade(revision)
        assert differences(await database.shape(), expected) == [], f"up to {revision}"
    await check_search(database)


async def test_schema_is_repaired_and_nothing_is_added_twice(database: Database) -> None:
    await database.upgrade("0031")
    before = await database.shape()

    def replay(connection: Connection) -> None:
        for revision in REVISIONS:
            module_of(revision).schema(schema_on(connection))

    await database(replay)
    assert differences(await database.shape(), before) == []
    await database.run(
        "DROP INDEX idx_messages_display_page",
        "DROP TABLE gateway_heartbeats",
        "DROP INDEX idx_sessions_title_unique",
        "DROP INDEX idx_messages_session_uid",
        "ALTER TABLE async_delegations DROP COLUMN origin_session_id",
        "INSERT INTO sessions (id, source, started_at, title) VALUES ('a', 'cli', 1, 'T')",
        "INSERT INTO sessions (id, source, started_at, title) VALUES ('b', 'cli', 2, 'T')",
    )
    await database(replay)
    assert differences(await database.shape(), before) == []
    assert await database.rows("SELECT title FROM sessions ORDER BY id") == [("T",), ("T #2",)]


async def test_released_revisions_make_what_they_made(database: Database) -> None:
    """A change of the newest schema is a revision of its own (`0031a`).

    It then needs copies of the functions that revision 0031 shares with the creation of a store.
    """
    await database.upgrade("0031")
    kept = json.loads(
        (FROZEN / f"0031-{'postgresql' if database.is_postgres else 'sqlite'}.json").read_text()
    )
    found = json.loads(json.dumps(await database.shape(), default=bytes.decode))
    if not any(TRIGRAM in str(row) for row in found.get("indexes", [])):  # no permission
        kept = {name: [r for r in rows if TRIGRAM not in str(r)] for name, rows in kept.items()}
    assert differences(found, kept) == []


@pytest.mark.filterwarnings("ignore:.*expression-based index")
async def test_models_describe_the_last_revision(database: Database) -> None:
    await database.upgrade("head")

    def is_described(_: object, name: str, kind: str, reflected: bool, __: object) -> bool:
        return not (
            (name.startswith("messages_fts") or name == "hermes_alembic_version")
            or (name in {"message_search", *ON_DEMAND_TABLES} and not database.is_postgres)
            or (kind == "index" and reflected and name.endswith("_trgm"))
            or (kind == "column" and reflected and name in LEASE_COLUMNS)
        )

    def is_of_key(proposal: Any) -> bool:
        """Whether a column is a key, which other programs declare without NOT NULL on SQLite."""
        if not isinstance(proposal, list) or database.is_postgres:
            return False
        table = Base.metadata.tables[proposal[0][2]]
        return bool(table.columns[proposal[0][3]].primary_key)

    def proposals(connection: Connection) -> list[Any]:
        options = {
            **revision_runs.CONTEXT_OPTIONS,
            "compare_server_default": True,
            "include_object": is_described,
        }
        context = MigrationContext.configure(connection, opts=options)
        found = compare_metadata(context, Base.metadata)
        return [proposal for proposal in found if not is_of_key(proposal)]

    assert await database(proposals) == []


async def test_downgrade_that_loses_data_needs_consent(database: Database) -> None:
    await database.upgrade("0001")
    await database.run(*STORY)
    await database.upgrade("head")
    before = await database.shape()
    for revision in ("0030", "0025", "base"):
        with pytest.raises(CommandError, match=r"message_uid.*nothing was changed.*force=true"):
            await database.downgrade(revision)
        assert differences(await database.shape(), before) == []
    await database.downgrade("0030", force=True)
    await database.downgrade("0021")  # nothing of these versions was used
    await database.run("UPDATE messages SET active = 0 WHERE id = 1")
    with pytest.raises(CommandError, match="rows of session_model_usage"):
        await database.downgrade("0013")
    await database.run("DELETE FROM session_model_usage")
    with pytest.raises(CommandError, match=r"messages\.active"):
        await database.downgrade("0013")
    assert await revision_of(database) == [("0021", 21)]


async def test_psycopg_runs_every_step_with_data(make_location: Callable[..., str]) -> None:
    database = Database(make_location("postgresql+psycopg", empty=True))
    await database.upgrade("0001")
    await database.run(*STORY)
    await database.upgrade("head")
    assert await database.rows("SELECT count(*) FROM system_prompts") == [(1,)]
    await database.downgrade("0001", force=True)
    assert await database.rows("SELECT DISTINCT system_prompt FROM sessions") == [("be kind",)]


async def test_index_that_is_in_order_is_not_filled_anew(
    make_location: Callable[..., str],
) -> None:
    database = Database(make_location("sqlite"))
    await database.run(*STORY)
    await database.downgrade("0030", force=True)
    await database.run("DELETE FROM messages_fts_docsize WHERE id = 1")
    await database.upgrade("0031")
    assert await database.rows("SELECT id FROM messages_fts_docsize") == [(2,), (3,)]


async def test_empty_database_goes_down_without_consent(database: Database) -> None:
    before = await database.shape()
    await database.upgrade("head")
    await database.run("DELETE FROM state_meta")
    await database.downgrade("base")
    left = await database.shape()
    names = {str(row) for rows in left.values() for row in rows} - {
        str(row) for rows in before.values() for row in rows
    }
    assert all("hermes_alembic_version" in name or "sqlite_sequence" in name for name in names)


async def test_tables_of_the_host_stay_as_they_are(database: Database) -> None:
    await database.run(
        "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)",
        "INSERT INTO alembic_version VALUES ('host')",
        "CREATE TABLE notes (id INTEGER PRIMARY KEY, text VARCHAR(9))",
        "INSERT INTO notes VALUES (1, 'kept')",
    )
    await database.upgrade("head")
    await database.downgrade("0010", force=True)
    assert await database.rows("SELECT version_num FROM alembic_version") == [("host",)]
    assert await database.rows("SELECT id, text FROM notes") == [(1, "kept")]


def test_scripts_can_be_written_in_both_directions() -> None:
    for url in ("sqlite.db", "postgresql+asyncpg://u:p@localhost/x"):
        written = StringIO()
        config = Config(
            CHECKOUT / "alembic.ini", output_buffer=written, cmd_opts=Namespace(x=[f"url={url}"])
        )
        command.upgrade(config, "0015:0031", sql=True)
        command.downgrade(config, "0031:0022", sql=True)
        assert "UPDATE schema_version SET version=22" in written.getvalue()
        assert "DROP COLUMN" in written.getvalue() and "-- Not in this script" in written.getvalue()


async def test_search_follows_messages_in_every_layout(make_location: Callable[..., str]) -> None:
    database = Database(make_location("sqlite", empty=True))
    await database.upgrade("0001")
    await database.run(*STORY)
    for revision, indexes in LAYOUTS.items():
        await database.upgrade(revision)
        await database.run(
            "INSERT INTO messages (session_id, role, content, tool_name, timestamp) "
            "VALUES ('root', 'user', 'a needle', NULL, 4), ('root', 'tool', 'hay', 'fork', 5)",
            "UPDATE messages SET content = 'sold' WHERE content = 'a needle'",
            "UPDATE messages SET role = 'tool' WHERE content = 'sold'",
            "UPDATE sessions SET source = 'cron' WHERE id = 'root'",
            "DELETE FROM messages WHERE id > 3",
            "UPDATE sessions SET source = 'cli' WHERE id = 'root'",
        )
        await check_search(database)
        tables = "SELECT name FROM sqlite_schema WHERE sql LIKE '%USING fts5%'"
        assert len(await database.rows(tables)) == indexes, revision


async def test_index_of_a_large_store_can_be_left_to_later(
    make_location: Callable[..., str],
) -> None:
    database = Database(make_location("sqlite", empty=True))
    await database.upgrade("0001")
    await database.run(*STORY)
    await database.upgrade("head", defer_search=True)
    assert await database.rows(
        "SELECT key, value FROM state_meta WHERE key LIKE 'fts_rebuild%' ORDER BY key"
    ) == [("fts_rebuild_high_water", "3"), ("fts_rebuild_progress", "0")]
    assert await database.rows("SELECT count(*) FROM messages_fts_docsize") == [(0,)]


async def test_rebuilt_table_keeps_what_belongs_to_it(make_location: Callable[..., str]) -> None:
    database = Database(make_location("sqlite", empty=True))
    await database.upgrade("0001")
    await database.run(
        *STORY,
        "ALTER TABLE messages ADD COLUMN extra TEXT DEFAULT 'x'",
        "CREATE INDEX mine ON messages (timestamp DESC)",
        "CREATE TABLE log (id INTEGER)",
        "CREATE TRIGGER too AFTER INSERT ON messages BEGIN INSERT INTO log VALUES (NEW.id); END",
        "INSERT INTO messages (id, session_id, role, timestamp) VALUES (90, 'root', 'user', 9)",
        "DELETE FROM messages WHERE id = 90",
        "ALTER TABLE messages ADD COLUMN active INTEGER",
    )
    await database.upgrade("0014")
    await database.run(
        "INSERT INTO messages (session_id, role, timestamp) VALUES ('root', 'user', 9)"
    )
    assert await database.rows("SELECT max(id), min(active), min(extra) FROM messages") == [
        (91, 1, "x")
    ]
    assert await database.rows("SELECT id FROM log") == [(90,), (91,)]
    assert await database.rows(
        "SELECT name, \"desc\" FROM pragma_index_xinfo('mine') WHERE key = 1"
    ) == [("timestamp", 1)]
    assert await database.rows("PRAGMA foreign_key_check") == []
