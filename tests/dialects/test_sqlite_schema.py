"""A SQLite file has upstream's newest schema, and what this project adds to it."""

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from hermes_orm.dialects.sqlite import ddl, search_ddl
from hermes_orm.dialects.sqlite.search_ddl import FtsIndex
from tests.dialects.schemas import change, copied_sqlite, driver_of, fresh_sqlite, sqlite_file
from tests.dialects.sqlite_facts import Facts, schema_facts

UPSTREAM: Facts = json.loads(
    (Path(__file__).parents[1] / "fixtures/schema/sqlite-v31.json").read_text()
)

CONTENTS = {
    "definitions": "SELECT name, sql FROM sqlite_schema "
    "WHERE name NOT LIKE 'hermes%' AND tbl_name NOT LIKE 'hermes%'",
    "sessions": "SELECT * FROM sessions",
    "messages": "SELECT * FROM messages",
    "settings": "SELECT * FROM state_meta",
}


def names(driver: Any) -> set[str]:
    rows = driver.execute("SELECT name FROM sqlite_schema WHERE name NOT LIKE 'sqlite%'")
    return {row[0] for row in rows}


def upstream_part(driver: Any) -> Facts:
    facts = schema_facts(driver)
    facts["triggers"] = [name for name in facts["triggers"] if name not in ddl.OWN_OBJECTS]
    for name in ddl.OWN_OBJECTS:
        facts["tables"].pop(name, None)
    return facts


def drop_own_objects(driver: Any) -> None:
    for name in ddl.RECENCY_TRIGGERS:
        driver.execute(f"DROP TRIGGER {name}")
    driver.execute("DROP TABLE hermes_session_recency")
    driver.execute("DROP TABLE hermes_alembic_version")


@pytest.fixture
def fresh() -> Iterator[Any]:
    with fresh_sqlite() as driver:
        yield driver


def test_new_file_has_upstreams_schema(fresh: Any) -> None:
    built = upstream_part(fresh)
    assert built == UPSTREAM
    for name, table in UPSTREAM["tables"].items():
        assert list(built["tables"][name]["columns"]) == list(table["columns"])


def test_everything_else_in_a_new_file_is_an_own_object(fresh: Any) -> None:
    everything = names(fresh)
    drop_own_objects(fresh)
    assert everything - names(fresh) == ddl.OWN_OBJECTS


def test_new_file_says_what_it_is(fresh: Any) -> None:
    meta = dict(fresh.execute("SELECT key, value FROM state_meta"))
    assert meta.keys() == {"store_instance_id", "store_created_at_utc", "message_uid_backfill"}
    assert str(UUID(meta["store_instance_id"])) == meta["store_instance_id"]
    assert meta["store_created_at_utc"].endswith("+00:00")
    assert datetime.fromisoformat(meta["store_created_at_utc"]).year > 2000
    assert meta["message_uid_backfill"] == "1"
    assert fresh.execute("SELECT version FROM schema_version").fetchall() == [(31,)]
    assert fresh.execute("SELECT * FROM hermes_alembic_version").fetchall() == [("0031",)]


def test_two_new_files_are_two_stores(fresh: Any) -> None:
    query = "SELECT value FROM state_meta WHERE key = 'store_instance_id'"
    with fresh_sqlite() as other:
        assert other.execute(query).fetchone() != fresh.execute(query).fetchone()


def test_message_ids_are_never_reused(fresh: Any) -> None:
    fresh.execute("INSERT INTO sessions (id, source, started_at) VALUES ('s', 'cli', 1)")
    insert = "INSERT INTO messages (session_id, role, timestamp) VALUES ('s', 'user', 2)"
    first = fresh.execute(insert).lastrowid
    fresh.execute("DELETE FROM messages")
    assert fresh.execute(insert).lastrowid == first + 1


@pytest.mark.parametrize(
    ("index", "missing", "created"),
    [
        ("WORDS", {"name": "messages_fts USING absent (content) --"}, {"messages_fts_trigram"}),
        ("SUBSTRINGS", {"options": ", tokenize='absent'"}, {"messages_fts"}),
    ],
    ids=["module", "tokenizer"],
)
def test_index_that_sqlite_cannot_keep_is_left_out(
    index: str, missing: dict[str, str], created: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    usable: FtsIndex = getattr(search_ddl, index)
    unusable = FtsIndex(**{**vars(usable), **missing})
    monkeypatch.setattr(search_ddl, index, unusable)
    with sqlite_file() as connection:
        found: list[frozenset[str]] = []
        change(connection, lambda connection: found.append(ddl.create_head(connection)))
        driver = driver_of(connection)
        assert found == [created]
        left_out = {"messages_fts", "messages_fts_trigram"} - created
        prefixes = tuple(
            f"{name}_{end}" for name in left_out for end in ("src", "insert", "delete")
        )
        assert not [name for name in names(driver) if name.startswith(prefixes)]
        driver.execute("INSERT INTO sessions (id, source, started_at) VALUES ('s', 'cli', 1)")
        driver.execute(
            "INSERT INTO messages (session_id, role, content, timestamp) "
            "VALUES ('s', 'user', 'hello', 2)"
        )


def test_completing_adds_only_own_objects(historic_stores: Path, tmp_path: Path) -> None:
    original = historic_stores / "state-v31.db"
    with copied_sqlite(original, tmp_path) as driver:
        before = {kind: sorted(driver.execute(query)) for kind, query in CONTENTS.items()}
    with copied_sqlite(original, tmp_path, ddl.complete_head) as driver:
        assert upstream_part(driver) == UPSTREAM
        assert {kind: sorted(driver.execute(query)) for kind, query in CONTENTS.items()} == before
        assert driver.execute("SELECT * FROM hermes_alembic_version").fetchall() == [("0031",)]
        assert stored_recency(driver) == expected_recency(driver)
        assert len(stored_recency(driver)) == 5


def stored_recency(driver: Any) -> list[tuple[str, float]]:
    query = "SELECT session_id, last_active FROM hermes_session_recency ORDER BY 1"
    return list(driver.execute(query))


def expected_recency(driver: Any) -> list[tuple[str, float]]:
    query = """
        SELECT s.id, coalesce(
            (SELECT max(sign) FROM (
                SELECT s.last_activity_at AS sign
                UNION ALL SELECT timestamp FROM messages WHERE session_id = s.id
            )), s.started_at)
        FROM sessions s ORDER BY s.id
    """
    return list(driver.execute(query))


@pytest.mark.parametrize("lost", sorted(ddl.OWN_OBJECTS))
def test_completing_heals_a_lost_object(lost: str) -> None:
    with sqlite_file() as connection:
        change(connection, ddl.create_head)
        driver = driver_of(connection)
        driver.execute("INSERT INTO sessions (id, source, started_at) VALUES ('s', 'cli', 1)")
        kind = driver.execute("SELECT type FROM sqlite_schema WHERE name = ?", (lost,)).fetchone()[
            0
        ]
        driver.execute(f"DROP {kind} {lost}")
        change(connection, ddl.complete_head)
        assert names(driver) >= ddl.OWN_OBJECTS
        assert stored_recency(driver) == [("s", 1.0)]
        assert driver.execute("SELECT * FROM hermes_alembic_version").fetchall() == [("0031",)]


def test_completing_a_complete_file_writes_nothing() -> None:
    with sqlite_file() as connection:
        change(connection, ddl.create_head)
        driver = driver_of(connection)
        state = driver.execute("PRAGMA schema_version").fetchone(), driver.total_changes
        change(connection, ddl.complete_head)
        assert (driver.execute("PRAGMA schema_version").fetchone(), driver.total_changes) == state
