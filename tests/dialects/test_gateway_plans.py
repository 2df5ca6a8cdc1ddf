"""Peers are looked up by indexes, however many sessions a platform has."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Connection, make_url

from hermes_orm.dialects import Prepared
from hermes_orm.repositories.gateway.origins import by_origin, newest_sessions
from hermes_orm.repositories.gateway.orphans import DONORS
from hermes_orm.repositories.gateway.peers import LATEST_BY_KEY, RECORD_LINEAGE, latest_by_tuple
from tests.dialects.schemas import fresh_sqlite, sqlite_file
from tests.raw import postgres_engine

CHAT = frozenset({"user_id", "chat_id", "chat_type", "thread_id"})
STATEMENTS: dict[str, tuple[Prepared, str]] = {
    "key": (LATEST_BY_KEY, "idx_sessions_session_key"),
    "tuple": (latest_by_tuple(frozenset()), "idx_sessions_gateway_peer"),
    "no thread": (latest_by_tuple(frozenset({"thread_id"})), "idx_sessions_gateway_peer"),
    "no user": (latest_by_tuple(frozenset({"user_id"})), "idx_sessions_gateway_peer"),
    "origin": (by_origin(has_thread=False, is_threaded=True), "idx_sessions_gateway_peer"),
    "list": (newest_sessions(frozenset({"active"})), "idx_sessions_session_key"),
    "lineage": (RECORD_LINEAGE, ""),
    "donors": (DONORS, "idx_hermes_session_recency_order"),
}
VALUES: dict[str, Any] = {
    "source": "tg",
    "platform": "tg",
    "session_key": "k7",
    "user_id": "u7",
    "chat_id": "c7",
    "chat_type": "dm",
    "thread_id": "t",
    "profile": None,
    "session_id": "s7",
    "display_name": None,
    "origin_json": None,
    "transport_profile": None,
    "first": 0.0,
    "last": 5.0,
}
FILL = """
    INSERT INTO sessions (id, source, started_at, session_key, user_id, chat_id, chat_type)
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 4000)
    SELECT 's' || i, 'tg', i, 'k' || (i % 1000), 'u' || (i % 1000), 'c' || (i % 1000), 'dm' FROM n
"""


@pytest.mark.parametrize("name", STATEMENTS)
@pytest.mark.parametrize("analyzed", [False, True])
def test_sqlite_seeks_peers(name: str, analyzed: bool) -> None:
    statement, index = STATEMENTS[name]
    with sqlite_file() as connection, fresh_sqlite() as driver:
        if analyzed:
            driver.execute(FILL)
            driver.execute("ANALYZE")
        compiled = statement.compiled(connection.dialect)
        values = compiled.values(VALUES)
        steps = [row[3] for row in driver.execute(f"EXPLAIN QUERY PLAN {compiled.text}", values)]
    assert not [step for step in steps if step.startswith("SCAN sessions")], steps
    assert any(index in step for step in steps), steps
    if name in ("tuple", "no thread", "no user"):
        seeks = [step for step in steps if index in step]
        assert all("chat_type=?" in step for step in seeks), steps


@pytest.fixture
def many(make_location: Callable[..., str]) -> Iterator[Connection]:
    """A PostgreSQL database with 20,000 sessions of 1,000 peers."""
    engine = postgres_engine(make_location("postgresql+psycopg"))
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "INSERT INTO sessions"
            " (id, source, started_at, session_key, user_id, chat_id, chat_type)"
            " SELECT 's' || n, 'tg', n, 'k' || n %% 1000, 'u' || n %% 1000, 'c' || n %% 1000, 'dm'"
            " FROM generate_series(1, 20000) n"
        )
        connection.exec_driver_sql("ANALYZE sessions")
        connection.exec_driver_sql("ANALYZE hermes_session_recency")
        yield connection
    engine.dispose()


@pytest.mark.parametrize("mode", ["force_generic_plan", "force_custom_plan"])
def test_postgresql_seeks_peers(many: Connection, mode: str) -> None:
    dialect = make_url("postgresql+asyncpg://").get_dialect()()
    many.exec_driver_sql(f"SET LOCAL plan_cache_mode = {mode}")
    for name, (statement, _) in STATEMENTS.items():
        compiled = statement.compiled(dialect)
        values = ", ".join("NULL" if v is None else f"'{v}'" for v in compiled.values(VALUES))
        many.exec_driver_sql(f"PREPARE peer AS {compiled.text}".replace("%", "%%"))
        given = f"({values})" if values else ""
        plan = many.exec_driver_sql(f"EXPLAIN EXECUTE peer {given}").scalars().all()
        many.exec_driver_sql("DEALLOCATE peer")
        assert not [step for step in plan if "Seq Scan on sessions" in step], (name, plan)
