"""Opening a SQLite file: all of the schema, or nothing. M1 to M13 are field reports."""

import asyncio
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from alembic.script import ScriptDirectory

from hermes_orm import SchemaError, SessionDB, migrations
from hermes_orm.config import Settings
from hermes_orm.dialects import revision_runs
from hermes_orm.dialects.sqlite import ddl, driver
from hermes_orm.dialects.sqlite.adoption.fingerprint import missing_columns
from tests.historic.shape import differences, shape
from tests.raw import Raw

LOST = {
    "a column of sessions": ["ALTER TABLE sessions DROP COLUMN cwd"],
    "a column that a revision fills": [
        "DROP TRIGGER messages_message_uid_insert",
        "DROP INDEX idx_messages_session_uid",
        "ALTER TABLE messages DROP COLUMN message_uid",
    ],
    "a table": ["DROP TABLE gateway_heartbeats"],
}
"""What a file of the newest schema may lack, whatever its version says."""


async def test_a_schema_is_created_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = ddl.create_head

    def fail(connection: object) -> None:
        create(connection)  # type: ignore[arg-type]
        raise KeyError("power cut")

    monkeypatch.setattr(ddl, "create_head", fail)
    db = SessionDB(tmp_path / "state.db")
    with pytest.raises(KeyError):
        await db.session_count()
    connection = driver.module().connect(tmp_path / "state.db")
    assert connection.execute("SELECT name FROM sqlite_master").fetchall() == []
    connection.close()

    monkeypatch.undo()
    assert await db.session_count() == 0
    await db.close()


@pytest.mark.parametrize("is_stamped", [True, False])
@pytest.mark.parametrize("lost", LOST)
async def test_what_the_version_promises_and_the_file_lacks_is_added(
    make_location: Callable[..., str], sqlite_template: Path, lost: str, is_stamped: bool
) -> None:  # M1
    path = make_location("sqlite")
    async with SessionDB(path) as db:
        await db.create_session("s", "cli", cwd="/w")
        await db.append_message("s", "user", "kept")
    raw = Raw(path)
    for statement in LOST[lost]:
        await raw.execute(statement)
    if not is_stamped:
        await raw.execute("DROP TABLE hermes_alembic_version")
    with closing(driver.module().connect(path)) as connection:
        missing = missing_columns(connection)
    async with SessionDB(path, read_only=True) as db:
        with pytest.raises(SchemaError, match=min(missing)):
            await db.get_session("s")
    async with SessionDB(path) as db:
        assert await db.get_session("s")
        await db.append_message("s", "user", "more")
        assert [row["content"] for row in await db.get_messages("s")] == ["kept", "more"]
        assert len(await db.search_messages("kept")) == 1
        await db.update_session_cwd("s", "/other")
    assert differences(await shape(path), await shape(sqlite_template)) == {}
    assert len(list(Path(path).parent.glob(f"{Path(path).name}.bak-v*"))) == 1
    uids = await raw.fetch("SELECT count(DISTINCT message_uid) FROM messages")
    assert uids == [(2,)]


@pytest.fixture
async def old(tmp_path: Path) -> Path:
    """A file of version 16 of another program, with a session and a view of the user's own."""
    path = tmp_path / "state.db"
    await migrations.upgrade(str(path), "0016", settings=Settings({}))
    raw = Raw(str(path))
    await raw.execute("DROP TABLE hermes_alembic_version")
    await raw.execute("CREATE VIEW mine AS SELECT s.title, m.content FROM sessions s, messages m")
    await insert_as_version_16(raw, "first")
    return path


async def insert_as_version_16(raw: Raw, session_id: str) -> None:
    """Store a session and a message as a program does that knows no newer schema."""
    await raw.execute(
        "INSERT INTO sessions (id, source, model, started_at, title) VALUES (?, 'cli', 'm', 1, ?)",
        session_id,
        session_id,
    )
    await raw.execute(
        "INSERT INTO messages (session_id, role, content, timestamp) VALUES (?, 'user', ?, 1)",
        session_id,
        f"words of {session_id}",
    )


async def test_an_upgraded_file_serves_views_and_programs_of_before(old: Path) -> None:  # M12, M13
    raw = Raw(str(old))
    async with SessionDB(old) as db:
        assert await db.session_count() == 1
        await insert_as_version_16(raw, "second")
        for session_id in ("first", "second"):
            session: Any = await db.get_session(session_id)
            assert session["title"] == session_id
            assert await db.message_count(session_id) == 1
        assert len(await db.search_messages("words")) == 2
        assert len(await raw.fetch("SELECT * FROM mine")) == 4


async def test_a_locked_file_is_migrated_later_and_wholly(
    old: Path, sqlite_template: Path
) -> None:  # M4
    with closing(driver.module().connect(str(old), isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        async with SessionDB(old) as db:
            opening = asyncio.create_task(db.session_count())
            await asyncio.sleep(1.2)
            assert not opening.done()
            other.execute("ROLLBACK")
            assert await opening == 1
    await Raw(str(old)).execute("DROP VIEW mine")
    assert differences(await shape(old), await shape(sqlite_template)) == {}


async def test_a_migration_that_cannot_run_is_told_each_time(
    old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # M11
    broken = tmp_path / "scripts"
    shutil.copytree(revision_runs.script_folder(), broken)
    (broken / "env.py").write_text("import no_such_module_at_all")
    before = old.read_bytes()
    async with SessionDB(old) as db:
        with monkeypatch.context() as patched:
            patched.setattr(revision_runs, "_scripts", lambda: ScriptDirectory(str(broken)))
            for _ in range(2):
                with pytest.raises(ImportError, match="no_such_module_at_all"):
                    await db.session_count()
        assert old.read_bytes() == before
        assert await db.session_count() == 1
