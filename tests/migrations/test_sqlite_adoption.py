"""Adoption of a SQLite file holds what it promises when it is disturbed."""

import asyncio
import hashlib
import shutil
import signal
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hermes_orm import SchemaError, SessionDB, migrations
from hermes_orm.config import Settings
from hermes_orm.dialects.adoption import Adoption, AdoptionReport
from hermes_orm.dialects.sqlite import driver as sqlite_driver
from hermes_orm.dialects.sqlite.adoption.lock import migration_lock
from hermes_orm.services.leftovers import finish_leftovers
from tests.historic.shape import differences, shape
from tests.raw import Raw

CHECKOUT = Path(__file__).parents[2]
STEPS = [
    "hermes_orm.dialects.sqlite.adoption.backup._copy",
    "hermes_orm.dialects.sqlite.search_upkeep.drop_search",
    "hermes_orm.dialects.revision_runs.replay_schema",
    "hermes_orm.dialects.sqlite.adoption.adopting._stamp",
    "hermes_orm.dialects.revision_runs.upgrade",
    "hermes_orm.dialects.sqlite.ddl.complete_head",
    "hermes_orm.dialects.sqlite.search_upkeep.restore_search",
    "hermes_orm.dialects.sqlite.adoption.adopting.verify",
]
"""Functions of an adoption, in the order in which they run."""

FEW = [STEPS[0], STEPS[1], STEPS[4], STEPS[-1]]
"""While it is copied, with the index gone, with the new schema, and just before the commit."""

MESSAGES = 40
OPEN = """
import asyncio, sys
from hermes_orm import SessionDB

async def main():
    async with SessionDB(sys.argv[1]) as db:
        assert await db.message_count() == {messages}

asyncio.run(main())
"""
KILLED = """
import importlib, os, signal
name, _, function = "{step}".rpartition(".")
module = importlib.import_module(name)
before = getattr(module, function)

def after(*arguments, **options):
    before(*arguments, **options)
    os.kill(os.getpid(), signal.SIGKILL)

setattr(module, function, after)
"""
LIMITED = """
import os, resource, sys
size = os.path.getsize(sys.argv[1]) + {room}
resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
"""


@pytest.fixture(scope="module")
def version_16(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of version 16, as another program leaves it: rows, and no stamp of ours."""
    path = tmp_path_factory.mktemp("old") / "state.db"
    asyncio.run(migrations.upgrade(str(path), "0016", settings=Settings({})))
    with closing(sqlite_driver.module().connect(str(path))) as connection:
        connection.execute("DROP TABLE hermes_alembic_version")
        connection.execute(
            "INSERT INTO sessions (id, source, started_at, model, input_tokens, system_prompt)"
            " VALUES ('s', 'cli', 1.0, 'acme', 10, 'You are kind.')"
        )
        connection.executemany(
            "INSERT INTO messages (session_id, role, content, timestamp)"
            " VALUES ('s', 'user', ?, ?)",
            [(f"cistern {number} " + "x" * 1000, number) for number in range(MESSAGES)],
        )
        connection.commit()
    return path


@pytest.fixture
def old(version_16: Path, tmp_path: Path) -> Path:
    """A copy of the file in a folder of its own."""
    path = tmp_path / "store" / "state.db"
    path.parent.mkdir()
    return Path(shutil.copyfile(version_16, path))


def folder(path: Path) -> dict[str, str]:
    """Return the digest of each file beside a store, and of the store."""
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in path.parent.iterdir()}


async def run(script: str, path: Path) -> int:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", script.replace("{messages}", str(MESSAGES)), str(path)),
        cwd=CHECKOUT,
        stderr=asyncio.subprocess.PIPE,
    )
    _, errors = await process.communicate()
    assert process.returncode in (0, 1, -signal.SIGKILL), errors
    return process.returncode


async def is_adopted(path: Path, template: Path) -> None:
    """Check an adopted file: all rows, found by search, and nothing of an earlier schema."""
    async with SessionDB(path) as db:
        assert await db.message_count("s") == MESSAGES
        session = await db.get_session("s")
        assert session is not None
        assert session["system_prompt"] == "You are kind."
        assert len(await db.search_messages("cistern", limit=100)) == MESSAGES
    raw = Raw(str(path))
    assert await raw.fetch("PRAGMA integrity_check") == [("ok",)]
    assert await raw.fetch("PRAGMA foreign_key_check") == []
    assert await raw.fetch("SELECT input_tokens FROM session_model_usage") == [(10,)]
    assert await raw.fetch("SELECT version FROM schema_version") == [(31,)]
    assert differences(await shape(path), await shape(template)) == {}


def backups(path: Path) -> list[Path]:
    return list(path.parent.glob("state.db.bak-v16-*"))


async def test_failure_of_a_step_leaves_the_file_as_it_was(
    old: Path, monkeypatch: pytest.MonkeyPatch, sqlite_template: Path
) -> None:
    before = folder(old)

    def fail(*arguments: object, **options: object) -> None:
        raise LookupError("broken step")

    for step in STEPS:
        with monkeypatch.context() as patched:
            patched.setattr(step, fail)
            async with SessionDB(old) as db:
                with pytest.raises(LookupError):
                    await db.message_count()
        assert folder(old) == before, step
    await is_adopted(old, sqlite_template)
    assert len(backups(old)) == 1


@pytest.mark.parametrize(
    "steps", [FEW, pytest.param(STEPS, marks=pytest.mark.full)], ids=["few", "all"]
)
async def test_killed_at_any_time_the_next_run_completes(
    old: Path, tmp_path: Path, sqlite_template: Path, steps: list[str]
) -> None:
    for step in steps:
        path = tmp_path / step / "state.db"
        path.parent.mkdir()
        shutil.copyfile(old, path)
        assert await run(KILLED.replace("{step}", step) + OPEN, path) == -signal.SIGKILL
        await is_adopted(path, sqlite_template)
        (backup,) = backups(path)
        assert {p.name for p in path.parent.iterdir()} == {"state.db", backup.name}, step


async def test_two_processes_adopt_once(old: Path, sqlite_template: Path) -> None:
    assert await asyncio.gather(*(run(OPEN, old) for _ in range(3))) == [0, 0, 0]
    await is_adopted(old, sqlite_template)
    assert len(backups(old)) == 1


@pytest.mark.parametrize("room", [-10_000, 10_000], ids=["for the copy", "for the changes"])
async def test_full_disk_leaves_the_file_as_it_was(
    old: Path, sqlite_template: Path, room: int
) -> None:
    before = folder(old)
    assert await run(LIMITED.replace("{room}", str(room)) + OPEN, old) == 1
    # Only the next connection can undo what a process without room could not.
    assert await Raw(str(old)).fetch("SELECT version FROM schema_version") == [(16,)]
    assert folder(old) == before
    await is_adopted(old, sqlite_template)


async def test_without_room_for_a_backup_nothing_is_changed(
    old: Path, monkeypatch: pytest.MonkeyPatch, sqlite_template: Path
) -> None:
    before = folder(old)
    usage = "hermes_orm.dialects.sqlite.adoption.backup.shutil.disk_usage"
    with monkeypatch.context() as patched:
        patched.setattr(usage, lambda path: SimpleNamespace(free=100))
        async with SessionDB(old) as db:
            with pytest.raises(SchemaError, match="100 are free: nothing was changed"):
                await db.message_count()
        assert folder(old) == before
        report = await migrations.adopt(str(old), backup=False)
    assert report.backup is None
    await is_adopted(old, sqlite_template)
    assert backups(old) == []


async def test_large_files_are_searchable_at_once_and_indexed_by_steps(
    old: Path, monkeypatch: pytest.MonkeyPatch, sqlite_template: Path
) -> None:
    monkeypatch.setattr("hermes_orm.dialects.sqlite.adoption.adopting.REBUILT_AT_ONCE", 10)
    raw = Raw(str(old))
    async with SessionDB(old) as db:
        assert len(await db.search_messages("cistern", limit=100)) == MESSAGES
        assert (await db.optimize_fts_storage(vacuum=False))["ok"]
        assert await raw.fetch("SELECT count(message_uid) FROM messages") == [(0,)]
        monkeypatch.setattr("hermes_orm.repositories.messages.leftovers.STEP_ROWS", 10)
        monkeypatch.setattr("hermes_orm.services.leftovers.PAUSE_SECONDS", 0)
        await finish_leftovers(db.database)
    uids = "SELECT count(DISTINCT message_uid) FROM messages"
    assert await raw.fetch(uids) == [(MESSAGES,)]
    done = "SELECT value FROM state_meta WHERE key = 'message_uid_backfill'"
    assert await raw.fetch(done) == [("1",)]
    await is_adopted(old, sqlite_template)
    assert await Raw(str(old)).fetch("SELECT count(*) FROM messages_fts_docsize") == [(MESSAGES,)]


@pytest.mark.parametrize("at_once", [10, 2000], ids=["large file", "small file"])
async def test_file_with_damaged_messages_is_refused(
    old: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    """Messages that a hasty migration leaves alone are checked in the file as it was."""
    monkeypatch.setattr("hermes_orm.dialects.sqlite.adoption.adopting.REBUILT_AT_ONCE", at_once)
    declared = ("role TEXT NOT NULL", "role TEXT")
    for statements in (declared, "UPDATE messages SET role = NULL WHERE id = 7"), (declared[::-1],):
        for statement in statements:
            with closing(sqlite_driver.module().connect(str(old), isolation_level=None)) as file:
                if isinstance(statement, str):
                    file.execute(statement)
                    continue
                file.execute("PRAGMA writable_schema = ON")
                change = "UPDATE sqlite_schema SET sql = replace(sql, ?, ?) WHERE name = 'messages'"
                file.execute(change, statement)
    before = folder(old)
    async with SessionDB(old) as db:
        with pytest.raises(SchemaError, match=r"NULL value in messages\.role.*nothing was changed"):
            await db.message_count()
    assert folder(old) == before


async def test_rows_of_a_large_file_that_must_be_repaired_are_counted_and_checked(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hermes_orm.dialects.sqlite.adoption.adopting.REBUILT_AT_ONCE", 10)
    with closing(sqlite_driver.module().connect(str(old), isolation_level=None)) as file:
        file.execute("DROP INDEX idx_messages_session_active")
        file.execute("ALTER TABLE messages DROP COLUMN active")
        file.execute("ALTER TABLE messages ADD COLUMN active INTEGER")
        file.execute("UPDATE messages SET active = 1 WHERE id > 7")
    reports: list[AdoptionReport] = []
    adoption = Adoption(migrations.replay_schema, reports.append, is_hasty=True)
    await migrations.run(str(old), migrations._to("head"), adoption=adoption)
    assert reports[0].repaired_rows["active flags set"] == 7
    visible = "SELECT count(*) FROM messages WHERE active = 1"
    assert await Raw(str(old)).fetch(visible) == [(MESSAGES,)]


async def test_copies_keep_the_ids_of_messages_that_have_none_yet(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hermes_orm.dialects.sqlite.adoption.adopting.REBUILT_AT_ONCE", 10)
    async with SessionDB(old) as db:
        await db.archive_and_compact("s", [{"role": "user", "content": "in short"}], watermark=30)
    twice = "SELECT count(*) FROM messages GROUP BY message_uid HAVING count(message_uid) = 2"
    assert len(await Raw(str(old)).fetch(twice)) == MESSAGES - 30


async def test_file_in_wal_mode_is_adopted_beside_its_readers(
    old: Path, sqlite_template: Path
) -> None:
    with closing(sqlite_driver.module().connect(str(old), isolation_level=None)) as reader:
        reader.execute("PRAGMA journal_mode=WAL")
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM messages").fetchone() == (MESSAGES,)
        await is_adopted(old, sqlite_template)
        assert reader.execute("SELECT count(*) FROM messages").fetchone() == (MESSAGES,)
    (backup,) = backups(old)
    assert await Raw(str(backup)).fetch("SELECT version FROM schema_version") == [(16,)]


async def test_read_only_store_changes_nothing_and_says_what_is_missing(old: Path) -> None:
    before = folder(old)
    async with SessionDB(old, read_only=True) as db:
        with pytest.raises(SchemaError, match=r"version 16.*read-only.*hermes-orm db upgrade"):
            await db.message_count()
    assert folder(old) == before


async def test_stamped_file_of_an_older_revision_is_copied_and_upgraded(
    old: Path, sqlite_template: Path
) -> None:
    await migrations.upgrade(str(old), "0020")
    assert await migrations.current(str(old)) == "0020"
    await is_adopted(old, sqlite_template)
    assert len(list(old.parent.glob("state.db.bak-v20-*"))) == 1


ODD = {
    "number lags": (["UPDATE schema_version SET version = 13"], 13, 15, "0013"),
    "number leads": (["UPDATE schema_version SET version = 22"], 22, 15, "0019"),
    "two numbers": (["INSERT INTO schema_version VALUES (25)"], None, 15, "0015"),
    "no number": (["UPDATE schema_version SET version = 'new'"], None, 15, "0015"),
    "hole": (["DROP INDEX idx_sessions_title_unique"], 16, 3, "0016"),
    "index of CJK without its tokenizer": (
        [
            "CREATE VIEW messages_fts_cjk_src AS SELECT id, content FROM messages",
            "CREATE VIRTUAL TABLE messages_fts_cjk USING fts5(content, tokenize='unicode61')",
            "PRAGMA writable_schema = 1",
            "UPDATE sqlite_master SET sql = replace(sql, 'unicode61', 'cjk_unicode61') "
            "WHERE name = 'messages_fts_cjk'",
        ],
        *(16, 15, "0016"),
    ),
    "damaged index": (["UPDATE messages_fts_data SET block = x'00'"], 16, 15, "0016"),
    "left of an interrupted conversion": (
        ["CREATE TABLE fts_v22_trash_messages_fts_data (id INTEGER PRIMARY KEY, block BLOB)"],
        *(16, 15, "0016"),
    ),
}
"""Defect -> statements that make it, and version, shape and start of the report."""


@pytest.mark.parametrize("defect", ODD)
async def test_odd_shapes_are_recognised_and_repaired(
    old: Path, sqlite_template: Path, defect: str
) -> None:
    statements, *expected = ODD[defect]
    with closing(sqlite_driver.module().connect(str(old))) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()
    report = await migrations.adopt(str(old))
    assert [report.version, report.shape, report.start] == expected
    await is_adopted(old, sqlite_template)


async def test_version_is_guessed_only_where_that_is_allowed(old: Path) -> None:
    await Raw(str(old)).execute("DELETE FROM schema_version")
    before = folder(old)
    with pytest.raises(SchemaError, match="looks like version 15"):
        await migrations.adopt(str(old), guess=False)
    assert folder(old) == before
    assert (await migrations.adopt(str(old))).start == "0015"


async def test_complete_file_with_a_hole_is_repaired(
    make_location: Callable[..., str], sqlite_template: Path
) -> None:
    location = make_location("sqlite")
    raw = Raw(location)
    await raw.execute("DROP TABLE hermes_alembic_version")
    await raw.execute("DROP INDEX idx_sessions_source_id")
    await raw.execute("ALTER TABLE sessions DROP COLUMN compression_recovery_deadline")
    report = await migrations.adopt(location)
    holes = ("idx_sessions_source_id", "sessions.compression_recovery_deadline")
    assert (report.version, report.shape, report.holes) == (31, 14, holes)
    assert differences(await shape(location), await shape(sqlite_template)) == {}


async def test_lost_indexes_are_built_by_an_upgrade(
    make_location: Callable[..., str], sqlite_template: Path
) -> None:
    location = make_location("sqlite")
    await Raw(location).execute("DROP INDEX idx_sessions_title_unique")
    await Raw(location).execute("DROP INDEX idx_messages_session_uid")
    report = await migrations.adopt(location)
    assert report.holes == ("idx_messages_session_uid", "idx_sessions_title_unique")
    assert (report.start, report.backup) == ("0031", None)
    assert differences(await shape(location), await shape(sqlite_template)) == {}


async def test_store_that_was_downgraded_to_nothing_is_created_again(
    old: Path, sqlite_template: Path
) -> None:
    with closing(sqlite_driver.module().connect(str(old.with_name("b.db")))) as connection:
        connection.execute("CREATE TABLE hermes_alembic_version (version_num TEXT PRIMARY KEY)")
    async with SessionDB(old.with_name("b.db")) as db:
        assert await db.message_count() == 0
    assert differences(await shape(old.with_name("b.db")), await shape(sqlite_template)) == {}


async def test_adoption_of_a_current_store_changes_nothing(
    make_location: Callable[..., str],
) -> None:
    location = make_location("sqlite")
    before = Path(location).read_bytes()
    report = await migrations.adopt(location)
    assert (report.start, report.search, report.backup) == ("0031", "kept", None)
    assert Path(location).read_bytes() == before


async def test_adoption_of_nothing_creates_nothing(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="empty: nothing was changed"):
        await migrations.adopt(str(tmp_path / "state.db"))
    assert not (tmp_path / "state.db").exists()


async def test_waiting_for_another_adoption_is_bounded(old: Path) -> None:
    before = folder(old)
    async with migration_lock(old, 1):
        with pytest.raises(SchemaError, match="been migrating state"):
            await migrations.adopt(str(old), lock_wait=0.1)
    assert folder(old) == before


async def test_lock_passes_from_one_to_the_next(old: Path) -> None:
    order: list[int] = []

    async def hold(number: int) -> Any:
        async with migration_lock(old, 5):
            order.append(number)
            await asyncio.sleep(0.05)
            order.append(number)

    await asyncio.gather(*map(hold, range(4)))
    assert order[::2] == order[1::2]
    assert sorted(set(order)) == [0, 1, 2, 3]
    assert [path.name for path in old.parent.iterdir() if "lock" in path.name] == []
