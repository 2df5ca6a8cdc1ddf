"""A walk along a chain looks sessions up by keys, however many there are."""

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Connection, make_url

from hermes_orm.dialects import Prepared
from hermes_orm.repositories.lineage import chains
from hermes_orm.repositories.sessions import flags, sessions, title_families, titles
from tests.dialects.schemas import fresh_sqlite, sqlite_file
from tests.raw import postgres_engine

THIS = {"session_id": "s7"}
PREFIX = {"session_id": "s", "first": "2026", "last": "2026~", "folded": "2026a", "length": 5}
EDGE = {"parent_session_id": "s7", "source": "cli", "model_config": None}
TITLE = {**THIS, "new_title": "T", "new_source": "llm", "replaced_below": 1}

WALKS = [
    pytest.param(chains.TIP, THIS, id="tip"),
    pytest.param(chains.RESUME, THIS, id="resume"),
    pytest.param(chains.LINEAGE, THIS, id="lineage"),
    pytest.param(chains.ROOT, THIS, id="root"),
    pytest.param(chains.LIVE_CHILD, THIS, id="child"),
    pytest.param(chains.IS_CONTINUATION, EDGE, id="edge"),
    pytest.param(sessions.RESOLVE, PREFIX, id="prefix"),
    pytest.param(flags.SET_PINNED, {**THIS, "value": 1}, id="conversation"),
    pytest.param(titles.PLACE, TITLE, id="title"),
    pytest.param(titles.LOCK_WITH_OWNER, TITLE, id="owner"),
    pytest.param(titles.CARRIES_ON, {**THIS, "owner_id": "s5"}, id="earlier owner"),
    pytest.param(title_families.RESOLVE, title_families.family("Plan"), id="segment"),
    pytest.param(title_families.FAMILY, title_families.family("Plan"), id="next title"),
]


@pytest.mark.parametrize(("statement", "params"), WALKS)
def test_sqlite_searches_by_keys(statement: Prepared, params: dict[str, Any]) -> None:
    with sqlite_file() as connection, fresh_sqlite() as driver:
        compiled = statement.compiled(connection.dialect)
        plan = driver.execute(f"EXPLAIN QUERY PLAN {compiled.text}", compiled.values(params))
        steps = [row[3] for row in plan]
    read = [step for step in steps if "sessions" in step or "messages" in step]
    assert read and all(step.startswith("SEARCH") for step in read)


@pytest.fixture(scope="module")
def many(postgres_server: Any, postgres_template: str) -> Iterator[Connection]:
    """A PostgreSQL database with 5,000 sessions in chains of 5, and their messages."""
    name = f"{postgres_server.prefix}_lineage_plans"
    postgres_server.create(name, postgres_template)
    engine = postgres_engine(postgres_server.location(name, "postgresql+psycopg"))
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "INSERT INTO sessions (id, source, started_at, end_reason, parent_session_id) "
            "SELECT 's' || n, 'cli', n, 'compression', "
            "CASE WHEN mod(n, 5) > 0 THEN 's' || n - 1 END FROM generate_series(0, 4999) n"
        )
        connection.exec_driver_sql(
            "INSERT INTO messages (session_id, role, timestamp) SELECT id, 'user', 1 FROM sessions"
        )
        for table in ("sessions", "messages", "hermes_session_recency"):
            connection.exec_driver_sql(f"ANALYZE {table}")
        yield connection
    engine.dispose()
    postgres_server.drop(name)


@pytest.mark.parametrize("mode", ["force_generic_plan", "force_custom_plan"])
@pytest.mark.parametrize(("statement", "params"), WALKS)
def test_postgresql_looks_sessions_up(
    many: Connection, mode: str, statement: Prepared, params: dict[str, Any]
) -> None:
    compiled = statement.compiled(make_url("postgresql+asyncpg://").get_dialect()())
    values = ", ".join(
        "NULL" if value is None else f"'{value}'" for value in compiled.values(params)
    )
    many.exec_driver_sql(f"SET LOCAL plan_cache_mode = {mode}")
    many.exec_driver_sql(f"PREPARE walk AS {compiled.text}")
    plan = many.exec_driver_sql(f"EXPLAIN EXECUTE walk ({values})").scalars().all()
    many.exec_driver_sql("DEALLOCATE walk")
    assert not [step for step in plan if "Seq Scan on" in step]
