"""A page of sessions is read by keys, however many sessions there are."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, make_url

from hermes_orm import SessionDB
from hermes_orm.dialects import Prepared
from hermes_orm.dialects.expressions import text_list
from hermes_orm.dialects.sqlite import ddl
from hermes_orm.repositories.listing.statements import (
    Shape,
    carried_on,
    page_by_activity,
    page_by_id,
    page_by_start,
    recent_slice,
    rows_by_id,
)
from hermes_orm.repositories.sessions.filters import ID_QUERY, session_filter
from tests.contract.stories import Story, ids
from tests.dialects.schemas import driver_of, fresh_sqlite, sqlite_file
from tests.raw import Raw, postgres_engine

PAGE = {"limit": 20, "offset": 0}
FILTERS: list[dict[str, Any]] = [
    {},
    {"source": "cli"},
    {"sources": ["cli", "tg"], "exclude_sources": ["cron"], "include_hidden": True},
    {"archived_only": True, "min_message_count": 1, "cwd_prefix": "/w"},
    {"include_children": True, "include_archived": True},
]


@pytest.mark.parametrize("filters", FILTERS)
def test_sqlite_walks_the_index_of_start_times(filters: dict[str, Any]) -> None:
    wanted = session_filter(**filters)
    with sqlite_file() as connection, fresh_sqlite() as driver:
        statement = page_by_start(Shape(wanted.names)).compiled(connection.dialect)
        values = statement.values({**wanted.params, **PAGE})
        steps = [row[3] for row in driver.execute(f"EXPLAIN QUERY PLAN {statement.text}", values)]
    tables = [step for step in steps if "sessions" in step or "messages" in step]
    assert "USING INDEX idx_sessions_started" in tables[0]
    assert all(step.startswith("SEARCH") for step in tables[1:])
    assert "USE TEMP B-TREE FOR RIGHT PART OF ORDER BY" in steps, "of equal times only"


@pytest.mark.parametrize("analyzed", [False, True])
@pytest.mark.parametrize("filters", [{}, {"source": "cli", "workspace_key": "/w"}])
def test_sqlite_walks_the_index_of_activity(filters: dict[str, Any], analyzed: bool) -> None:
    kinds: dict[str, Any] = dict.fromkeys(
        ("include_children", "include_archived", "include_hidden"), True
    )
    wanted = session_filter(**filters, **kinds)
    with sqlite_file() as connection, fresh_sqlite() as driver:
        if analyzed:
            driver.execute(
                "INSERT INTO sessions (id, source, started_at) "
                "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500) "
                "SELECT 's' || i, 'cli', i FROM n"
            )
            driver.execute("ANALYZE")
        statement = page_by_activity(wanted.names).compiled(connection.dialect)
        values = statement.values({**wanted.params, **PAGE})
        steps = [row[3] for row in driver.execute(f"EXPLAIN QUERY PLAN {statement.text}", values)]
    assert "USING COVERING INDEX idx_hermes_session_recency_order" in steps[0]
    assert not [step for step in steps[1:] if step.startswith("SCAN sessions")]
    assert "USE TEMP B-TREE FOR RIGHT PART OF ORDER BY" in steps, "of equal times only"


@pytest.mark.parametrize("filters", FILTERS)
def test_only_arguments_are_bound(filters: dict[str, Any]) -> None:
    """Constants that partial indexes mention would have SQLite prepare each execution anew."""
    wanted = session_filter(**filters)
    with sqlite_file() as connection:
        statement = page_by_start(Shape(wanted.names)).compiled(connection.dialect)
    assert set(statement.names) <= wanted.params.keys() | PAGE.keys() | statement.defaults.keys()
    assert set(statement.defaults.values()) <= {0}, "the OFFSET that SQLAlchemy adds to a LIMIT"


@pytest.fixture
def many(make_location: Callable[..., str]) -> Iterator[Connection]:
    """A PostgreSQL database with 5,000 sessions."""
    engine = postgres_engine(make_location("postgresql+psycopg"))
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "INSERT INTO sessions (id, source, started_at) "
            "SELECT 's' || n, 'cli', n FROM generate_series(1, 5000) n"
        )
        connection.exec_driver_sql("ANALYZE sessions")
        connection.exec_driver_sql("ANALYZE hermes_session_recency")
        yield connection
    engine.dispose()


@pytest.mark.parametrize("mode", ["force_generic_plan", "force_custom_plan"])
@pytest.mark.parametrize(
    ("statement", "params"),
    [
        pytest.param(page_by_start(Shape(session_filter().names)), PAGE, id="start"),
        pytest.param(
            recent_slice(session_filter().names), {"before": math.inf, "skipped": 39}, id="slice"
        ),
        pytest.param(
            carried_on(session_filter().names), {"ids": text_list(["s1", "s2"])}, id="carried"
        ),
        pytest.param(rows_by_id(Shape(frozenset())), {"ids": text_list(["s1", "s2"])}, id="ids"),
        pytest.param(page_by_activity(frozenset()), PAGE, id="activity"),
        pytest.param(
            page_by_id(Shape(session_filter(id_query="s1").names)),
            {ID_QUERY: "s1", "limit": 20},
            id="part of an id",
        ),
    ],
)
def test_postgresql_looks_sessions_up(
    many: Connection, mode: str, statement: Prepared, params: dict[str, Any]
) -> None:
    compiled = statement.compiled(make_url("postgresql+asyncpg://").get_dialect()())
    values = ", ".join(f"'{value}'" for value in compiled.values(params))
    many.exec_driver_sql(f"SET LOCAL plan_cache_mode = {mode}")
    many.exec_driver_sql(f"PREPARE page AS {compiled.text}".replace("%", "%%"))
    plan = many.exec_driver_sql(f"EXPLAIN EXECUTE page ({values})").scalars().all()
    many.exec_driver_sql("DEALLOCATE page")
    scans = [step for step in plan if "Seq Scan on" in step and "system_prompts" not in step]
    assert len(scans) == int(ID_QUERY in params), "all ids, once, for a part of one"


@pytest.fixture
def unstamped(make_location: Callable[..., str]) -> str:
    """A file of the newest schema without anything of ours in it."""
    location = make_location("sqlite")
    with sqlite_file(Path(location)) as connection:
        driver = driver_of(connection)
        objects = driver.execute("SELECT type, name FROM sqlite_schema").fetchall()
        for kind, name in sorted(objects, reverse=True):  # triggers before tables
            if name in ddl.OWN_OBJECTS:
                driver.execute(f"DROP {kind} IF EXISTS {name}")
    return location


async def test_a_read_only_store_computes_what_a_file_does_not_hold(unstamped: str) -> None:
    story = Story(Raw(unstamped))
    await story.chain()
    await story.new("z", 5)
    await story.msg("tip", "live", 9)
    async with SessionDB(unstamped, read_only=True) as db:
        rows = await db.list_sessions_rich(order_by_last_active=True)
        assert [(row["id"], row["last_active"]) for row in rows] == [("tip", 9), ("z", 5)]
        assert ids(await db.list_sessions_rich()) == ["z", "tip"]
