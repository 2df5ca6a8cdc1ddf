"""Indexes on parts of ids and titles: used where they are, missed nowhere."""

import logging
from collections.abc import Callable

import pytest
from sqlalchemy import inspect, text

from hermes_orm import SessionDB
from hermes_orm.dialects.postgresql.trigram_ddl import TRIGRAM_INDEXES, create_trigram_indexes
from hermes_orm.repositories.listing.statements import Shape, page_by_id
from hermes_orm.repositories.sessions.filters import session_filter
from tests.raw import Raw, postgres_engine


async def test_parts_of_ids_are_found_alike_with_and_without_the_indexes(
    db: SessionDB, raw: Raw
) -> None:
    await raw.execute(
        "INSERT INTO sessions (id, source, started_at, title) SELECT 'chat-' || n, 'cli', n, "
        "'Title-of ' || n FROM generate_series(1, 3000) AS n"
    )
    await raw.execute("ANALYZE sessions")

    async def hits() -> list[list[str]]:
        return [
            *[[r["id"] for r in await db.search_sessions_by_id(q)] for q in ("AT-777", "t-2", "%")],
            *[
                [r["id"] for r in await db.list_sessions_rich(search_query=q, limit=9)]
                for q in ("of 123", "titleof777", "E-OF 99", "é")
            ],
        ]

    with_indexes = await hits()
    assert with_indexes[0] == ["chat-777"]
    names = await raw.fetch("SELECT indexname FROM pg_indexes WHERE indexname LIKE '%_trgm'")
    assert {row[0] for row in names} == set(TRIGRAM_INDEXES)
    for name in TRIGRAM_INDEXES:
        await raw.execute(f"DROP INDEX {name}")
    assert await hits() == with_indexes


async def test_the_index_of_ids_is_used(db: SessionDB, raw: Raw, location: str) -> None:
    await raw.execute(
        "INSERT INTO sessions (id, source, started_at) SELECT md5(CAST(n AS text)), 'cli', n "
        "FROM generate_series(1, 5000) AS n"
    )
    await raw.fetch("SELECT gin_clean_pending_list('idx_hermes_sessions_id_trgm')")
    await raw.execute("ANALYZE sessions")
    wanted = session_filter(id_query="c4ca42")
    with postgres_engine(location).begin() as connection:
        compiled = page_by_id(Shape(wanted.names)).compiled(connection.dialect)
        values = compiled.named({**wanted.params, "limit": 20})
        plan = connection.exec_driver_sql(f"EXPLAIN {compiled.text}", values).scalars().all()
    assert any("idx_hermes_sessions_id_trgm" in line for line in plan), plan


async def test_an_extension_in_another_schema_is_used(db: SessionDB, location: str) -> None:
    await db.create_session("s", "cli")
    with postgres_engine(location).begin() as connection:
        connection.execute(text("DROP EXTENSION pg_trgm CASCADE"))
        connection.execute(text('CREATE SCHEMA "Other place"'))
        connection.execute(text('CREATE EXTENSION pg_trgm SCHEMA "Other place"'))
        create_trigram_indexes(connection)
        create_trigram_indexes(connection)
        names = {index["name"] for index in inspect(connection).get_indexes("sessions")}
        assert names >= set(TRIGRAM_INDEXES)
    assert [row["id"] for row in await db.search_sessions_by_id("S")] == ["s"]


async def test_a_missing_permission_is_said_once_and_stops_nothing(
    make_location: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    location = make_location("postgresql+asyncpg", empty=True)
    engine = postgres_engine(location)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE sessions (id text, title text)"))
        connection.execute(text("CREATE ROLE hermes_nobody"))
        connection.execute(text("SET ROLE hermes_nobody"))
        create_trigram_indexes(connection)
        connection.execute(text("RESET ROLE"))
        connection.execute(text("DROP ROLE hermes_nobody"))
    (record,) = (r for r in caplog.records if r.levelno == logging.WARNING)
    assert "CREATE EXTENSION pg_trgm" in record.getMessage()
