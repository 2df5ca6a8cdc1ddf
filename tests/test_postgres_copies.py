"""A database that a test used before is like a new copy of the template."""

import asyncio
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from hermes_orm import SessionDB
from tests.postgres_copies import Copies, Copy
from tests.postgres_server import PostgresServer

FACTS = [
    """
    SELECT relname, relpages, reltuples, relallvisible, pg_relation_size(oid), relhastriggers
    FROM pg_class WHERE oid >= 16384 ORDER BY oid
    """,
    "SELECT relname, n_tup_ins, seq_scan, last_analyze, last_vacuum FROM pg_stat_user_tables"
    " ORDER BY relid",
    "SELECT sequencename, last_value FROM pg_sequences ORDER BY sequencename",
    "SELECT nextval(seqrelid::regclass) FROM pg_sequence ORDER BY seqrelid",
    "SELECT key, value FROM state_meta ORDER BY ctid",
    "SELECT version FROM schema_version",
    "SELECT version_num FROM hermes_alembic_version",
    "SELECT count(*) FROM pg_attribute",
    "SELECT datconnlimit, datacl FROM pg_database WHERE datname = current_database()",
]

CHANGES = [
    "CREATE TABLE another (id integer)",
    "ALTER TABLE sessions ADD COLUMN another text",
    "DROP INDEX idx_messages_session",
    "ALTER FUNCTION hermes_json_text(text, text) COST 7",
    "COMMENT ON TABLE sessions IS 'changed'",
    "ANALYZE sessions",
    "VACUUM state_meta",
    "TRUNCATE messages, message_search",
    "CREATE TEMPORARY TABLE passing (id integer)",
    "DO $$ BEGIN EXECUTE 'ALTER DATABASE ' || current_database() || ' SET jit = on'; END $$",
    "DO $$ BEGIN EXECUTE 'ALTER DATABASE ' || current_database() || ' CONNECTION LIMIT 9'; END $$",
    "SELECT lo_create(0)",
]


@pytest.fixture
def copies(postgres_server: PostgresServer, postgres_template: str) -> Iterator[Copies]:
    copies = Copies(postgres_server, postgres_template)
    yield copies
    copies.close()


def facts(server: PostgresServer, copy: Copy) -> list[Any]:
    with server.admin(copy.name) as connection:
        return [connection.execute(query).fetchall() for query in FACTS]


def change(server: PostgresServer, copy: Copy, statement: str) -> None:
    with server.admin(copy.name) as connection:
        connection.execute(statement)


async def use(location: str) -> None:
    async with SessionDB(location) as db:
        for number in range(60):
            await db.create_session(f"s{number}", "cli", system_prompt=f"prompt {number}")
            await db.append_message(f"s{number}", "user", f"a needle {number} " * 500)
        await db.set_meta("k", "v")
        await db.set_meta("store_instance_id", "changed")
        await db.delete_session("s7")


def test_a_used_database_is_like_a_new_one(copies: Copies, postgres_server: PostgresServer) -> None:
    used, new = copies.take(), copies.take()
    for _ in range(2):
        former = used.name
        asyncio.run(use(postgres_server.location(used.name, "postgresql+psycopg")))
        copies.give_back(used)
        assert used.name != former
        assert copies.take() is used
    assert facts(postgres_server, used) == facts(postgres_server, new)
    for copy in (used, new):
        postgres_server.drop(copy.name)


@pytest.mark.parametrize("statement", CHANGES)
def test_a_changed_database_is_dropped(
    copies: Copies, postgres_server: PostgresServer, statement: str
) -> None:
    copy = copies.take()
    change(postgres_server, copy, statement)
    copies.give_back(copy)
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        postgres_server.admin(copy.name)


def test_rows_of_an_undone_transaction_are_cleared(
    copies: Copies, postgres_server: PostgresServer
) -> None:
    undone = "BEGIN; INSERT INTO state_meta VALUES ('k', 'v'); ROLLBACK"
    copy, new = copies.take(), copies.take()
    change(postgres_server, copy, undone)
    change(postgres_server, copy, "SELECT setval('messages_id_seq', 7, false)")
    copies.give_back(copy)
    assert facts(postgres_server, copy) == facts(postgres_server, new)
    for name in (copy.name, new.name):
        postgres_server.drop(name)


def test_a_database_with_a_connection_is_dropped(
    copies: Copies, postgres_server: PostgresServer
) -> None:
    copy = copies.take()
    with postgres_server.admin(copy.name) as connection:
        copies.give_back(copy)
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
