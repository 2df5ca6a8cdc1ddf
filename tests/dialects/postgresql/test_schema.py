"""A PostgreSQL database has the logical schema of upstream's newest SQLite file."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, inspect, text
from sqlalchemy.ext.asyncio import create_async_engine

from hermes_orm.dialects.postgresql import ddl
from hermes_orm.dialects.postgresql.delegations_ddl import LEASE_COLUMNS
from hermes_orm.dialects.postgresql.trigram_ddl import TRIGRAM_INDEXES
from hermes_orm.models.own import ON_DEMAND_TABLES
from tests.postgres_server import PostgresServer
from tests.raw import postgres_engine

SHARED: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "fixtures/schema/sqlite-v31.json").read_text()
)["tables"]
SHARED.pop("sqlite_sequence")

BIG = {
    "messages": {"id", "token_count", "display_order"},
    "sessions": {
        *("message_count", "tool_call_count", "api_call_count", "input_tokens", "output_tokens"),
        *("cache_read_tokens", "cache_write_tokens", "reasoning_tokens"),
    },
    "session_model_usage": {
        *("api_call_count", "input_tokens", "output_tokens"),
        *("cache_read_tokens", "cache_write_tokens", "reasoning_tokens"),
    },
    "async_delegations": {"owner_pid", "owner_started_at"},
    "gateway_heartbeats": {"pid"},
}
TYPES = {"TEXT": "text", "REAL": "double precision", "INTEGER": "integer", "BLOB": "bytea"}


@pytest.fixture(scope="module")
def database(postgres_server: PostgresServer) -> Iterator[Connection]:
    name = f"{postgres_server.prefix}_{os.getpid()}_schema"
    postgres_server.create(name, "template0")
    engine = postgres_engine(postgres_server.location(name, "postgresql+psycopg"))
    with engine.begin() as connection:
        ddl.create_head(connection)
    with engine.connect() as connection:
        yield connection
    engine.dispose()
    postgres_server.drop(name)


def columns(database: Connection, table: str) -> dict[str, Any]:
    rows = database.execute(
        text(
            "SELECT column_name, data_type, collation_name, is_nullable, column_default, "
            "identity_generation FROM information_schema.columns "
            "WHERE table_schema = current_schema() AND table_name = :table "
            "ORDER BY ordinal_position"
        ),
        {"table": table},
    )
    return {row.column_name: row for row in rows}


def test_its_tables_are_the_shared_ones_and_our_own(database: Connection) -> None:
    expected = SHARED.keys() | ddl.OWN_TABLES | ON_DEMAND_TABLES
    assert set(inspect(database).get_table_names()) == expected
    assert inspect(database).get_view_names() == []


@pytest.mark.parametrize("table", SHARED)
def test_columns_are_those_of_sqlite(database: Connection, table: str) -> None:
    found = columns(database, table)
    more = LEASE_COLUMNS if table == "async_delegations" else ()  # several hosts share them
    assert list(found) == [*SHARED[table]["columns"], *more]
    for name, (kind, required, default, key) in SHARED[table]["columns"].items():
        column = found[name]
        expected = "bigint" if name in BIG.get(table, ()) else TYPES[kind]
        assert (name, column.data_type) == (name, expected)
        assert (column.is_nullable == "NO") == bool(required or key)
        if default is None:
            assert column.column_default is None
        else:
            assert column.column_default.removesuffix("::text") == default


def test_every_text_column_compares_byte_by_byte(database: Connection) -> None:
    for table in SHARED.keys() | {"hermes_session_recency", "message_search"} | ON_DEMAND_TABLES:
        for column in columns(database, table).values():
            assert column.data_type != "character varying"
            assert column.collation_name == ("C" if column.data_type == "text" else None)


def test_message_ids_may_be_given_or_drawn(database: Connection) -> None:
    assert columns(database, "messages")["id"].identity_generation == "BY DEFAULT"


@pytest.mark.parametrize("table", SHARED)
def test_indexes_are_those_of_sqlite(database: Connection, table: str) -> None:
    found = {
        row.name: [
            "unique" if row.is_unique else "",
            "partial" if row.is_partial else "",
            *([name, int(descending)] for name, descending in zip(*row[3:], strict=True)),
        ]
        for row in database.execute(INDEXES, {"table": table})
        if row.name not in TRIGRAM_INDEXES
    }
    expected = {
        name: [unique, partial, *([column, descending] for column, descending, _ in parts)]
        for name, (unique, partial, *parts) in SHARED[table]["indexes"].items()
        if not name.startswith("sqlite_autoindex")
    }
    assert found == expected


INDEXES = text(
    """
    SELECT i.relname AS name, x.indisunique AS is_unique, x.indpred IS NOT NULL AS is_partial,
        array_agg(a.attname::text ORDER BY k.position), array_agg(k.option & 1 ORDER BY k.position)
    FROM pg_index AS x
    JOIN pg_class AS i ON i.oid = x.indexrelid
    CROSS JOIN unnest(x.indkey, x.indoption) WITH ORDINALITY AS k (number, option, position)
    LEFT JOIN pg_attribute AS a ON a.attrelid = x.indrelid AND a.attnum = k.number AND k.number > 0
    WHERE x.indrelid = CAST(:table AS regclass) AND NOT x.indisprimary
    GROUP BY 1, 2, 3
    """
)


def test_foreign_keys_have_the_names_that_adopted_databases_have(database: Connection) -> None:
    found = {
        key["name"]: (key["constrained_columns"], key["referred_table"], key["options"])
        for table in inspect(database).get_table_names()
        for key in inspect(database).get_foreign_keys(table)
    }
    cascade = {"ondelete": "CASCADE"}
    assert found == {
        "fk_sessions_parent_session_id": (["parent_session_id"], "sessions", {}),
        "fk_sessions_system_prompt_hash": (["system_prompt_hash"], "system_prompts", {}),
        "fk_messages_session_id": (["session_id"], "sessions", {}),
        "fk_session_model_usage_session_id": (["session_id"], "sessions", cascade),
        "fk_telegram_dm_topic_bindings_session_id": (["session_id"], "sessions", cascade),
    }


@pytest.mark.parametrize("table", SHARED)
def test_keys_are_those_of_sqlite(database: Connection, table: str) -> None:
    places = {name: column[3] for name, column in SHARED[table]["columns"].items() if column[3]}
    found = inspect(database).get_pk_constraint(table)
    assert found["constrained_columns"] == sorted(places, key=lambda name: places[name])
    if places:
        assert found["name"] == f"{table}_pkey"


def test_triggers_keep_derived_tables_and_none_fires_on_appends(database: Connection) -> None:
    rows = database.execute(
        text(
            "SELECT tgname, tgrelid::regclass::text, tgtype & 4 > 0 FROM pg_trigger "
            "WHERE NOT tgisinternal"
        )
    )
    found = {tuple(row) for row in rows}
    assert {name for name, _, _ in found} == ddl.OWN_TRIGGERS
    assert {on_inserts for _, table, on_inserts in found if table == "messages"} == {False}


@pytest.mark.parametrize("removal", ["DELETE FROM messages", "TRUNCATE messages RESTART IDENTITY"])
def test_search_entries_are_indexed_and_go_with_their_message(
    database: Connection, removal: str
) -> None:
    with database.begin_nested():
        for statement in (
            "INSERT INTO sessions (id, source, started_at) VALUES ('s', 'cli', 1)",
            "INSERT INTO messages (id, session_id, role, timestamp) VALUES (7, 's', 'user', 1)",
            "INSERT INTO message_search (message_id, vec, doc_len) "
            "VALUES (7, to_tsvector('simple', 'garden bed'), 2)",
        ):
            database.execute(text(statement))
        assert database.scalar(text("SELECT vec @@ 'garden'::tsquery FROM message_search"))
        database.execute(text(removal))
        assert database.scalar(text("SELECT count(*) FROM message_search")) == 0
    definition = text("SELECT indexdef FROM pg_indexes WHERE indexname = 'idx_message_search_vec'")
    assert "USING gin (vec)" in str(database.scalar(definition))
    database.rollback()


def test_it_says_what_it_is(database: Connection) -> None:
    meta = {row.key: row.value for row in database.execute(text("SELECT * FROM state_meta"))}
    assert meta.keys() == {"store_instance_id", "store_created_at_utc", "message_uid_backfill"}
    assert database.execute(text("SELECT version FROM schema_version")).scalars().all() == [31]
    stamp = text("SELECT version_num FROM hermes_alembic_version")
    assert database.execute(stamp).scalars().all() == ["0031"]
    database.rollback()


async def test_asyncpg_builds_the_same(
    make_location: Callable[..., str], database: Connection
) -> None:
    engine = create_async_engine(make_location("postgresql+asyncpg", empty=True))
    tables = SHARED.keys() | {"message_search", "hermes_session_recency"}
    async with engine.begin() as connection:
        await connection.run_sync(ddl.create_head)
        found = await connection.run_sync(
            lambda sync: {name: columns(sync, name) for name in tables}
        )
    await engine.dispose()
    assert found == {name: columns(database, name) for name in tables}
