"""A database that bears the newest revision, and lacks something of it."""

from collections.abc import Callable

import pytest

from hermes_orm import SchemaError, SessionDB, migrations
from hermes_orm.dialects.inspection import findings_of
from hermes_orm.location import locate
from tests.migrations.catalogue import catalogue, differences
from tests.raw import Raw

LOST = (
    "DROP INDEX idx_messages_session_uid",
    "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'idx_sessions_source'::regclass",
    "DROP INDEX idx_sessions_title_unique",
    "CREATE INDEX idx_sessions_title_unique ON sessions (title)",
    "ALTER TABLE messages DROP CONSTRAINT fk_messages_session_id",
    "ALTER TABLE session_model_usage DROP CONSTRAINT fk_session_model_usage_session_id",
    "INSERT INTO sessions (id, source, started_at, title) VALUES ('a', 'cli', 1, 'T')",
    "INSERT INTO sessions (id, source, started_at, title) VALUES ('b', 'cli', 2, 'T')",
)


@pytest.fixture(params=["postgresql+asyncpg", "postgresql+psycopg"])
def location(request: pytest.FixtureRequest, make_location: Callable[..., str]) -> str:
    return make_location(request.param)


async def test_missing_indexes_and_references_are_repaired_at_opening(
    location: str, make_location: Callable[..., str]
) -> None:
    raw, before = Raw(location), await catalogue(location)
    for statement in LOST:
        await raw.execute(statement)
    async with SessionDB(location, read_only=True) as db:
        with pytest.raises(SchemaError, match=r"idx_messages_session_uid.* migration is required"):
            await db.session_count()
    async with SessionDB(location) as db:
        titles = {row["id"]: row["title"] for row in await db.list_sessions_rich()}
        assert titles == {"a": "T", "b": "T #2"}
    assert differences(await catalogue(location), before) == []
    assert await raw.fetch("SELECT 1 FROM pg_index WHERE NOT indisvalid") == []
    another = make_location("postgresql+asyncpg", empty=True)  # created after a repair
    async with SessionDB(another) as db:
        await db.session_count()
    assert differences(await catalogue(another), before) == []


async def test_reference_that_rows_break_holds_for_new_rows(location: str) -> None:
    raw = Raw(location)
    await raw.execute("ALTER TABLE messages DROP CONSTRAINT fk_messages_session_id")
    await raw.execute(
        "INSERT INTO messages (session_id, role, timestamp) VALUES ('gone', 'user', 1)"
    )
    async with SessionDB(location) as db:
        assert await db.message_count("gone") == 1
    found = [finding.text for finding in await findings_of(locate(location), lambda step: None)]
    assert "constraint fk_messages_session_id was never validated" in found


async def test_missing_columns_are_refused_and_made_anew_only_on_demand(location: str) -> None:
    raw, before = Raw(location), await catalogue(location)
    await raw.execute("ALTER TABLE sessions DROP COLUMN hidden")
    await raw.execute("DROP TABLE compression_locks")
    for read_only in (False, True):
        async with SessionDB(location, read_only=read_only) as db:
            with pytest.raises(SchemaError, match=r"incomplete table shape.*compression_locks"):
                await db.session_count()
    with pytest.raises(SchemaError, match="incomplete table shape"):
        await migrations.upgrade(location)
    assert await raw.fetch("SELECT to_regclass('compression_locks')") == [(None,)]
    await migrations.repair(location)
    assert differences(await catalogue(location), before) == []
    async with SessionDB(location) as db:
        assert await db.session_count() == 0


async def test_further_columns_and_tables_are_nobodys_business(location: str) -> None:
    raw = Raw(location)
    await raw.execute("ALTER TABLE sessions ADD COLUMN mood TEXT")
    await raw.execute("CREATE TABLE notes (id INTEGER)")
    async with SessionDB(location) as db:
        assert await db.session_count() == 0
