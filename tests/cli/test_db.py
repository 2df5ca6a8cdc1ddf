"""`hermes-orm db …`: results, exit codes, and what they never show."""

import asyncio
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import make_url

from hermes_orm import SessionDB, migrations
from hermes_orm.dialects.sqlite import driver as sqlite_driver
from tests.cli import commands
from tests.conftest import DRIVERS
from tests.raw import Raw


def run(command: str, *arguments: str, code: int = 0) -> str:
    """Run a command; return what it printed, on standard error when it failed."""
    return commands.run("db", command, *arguments, code=code)


def result(command: str, *arguments: str, code: int = 0) -> dict[str, Any]:
    """Run a command with --json; return its object."""
    return commands.result("db", command, *arguments, code=code)


async def write(location: str) -> None:
    async with SessionDB(location) as db:
        await db.create_session("s", "cli")
        await db.append_message("s", "user", "Is the cistern full? 蓄水池")


def execute(location: str, sql: str) -> None:
    asyncio.run(Raw(location).execute(sql))


@pytest.mark.parametrize("driver", DRIVERS[:2])
def test_a_database_from_its_creation_to_its_repair(
    make_location: Callable[..., str], driver: str
) -> None:
    location = make_location(driver, empty=True)
    if driver != "sqlite":
        assert result("status", location)["kind"] == "empty"
    assert result("upgrade", location, "--revision", "0028")["revision"] == "0028"
    assert "0099" in run("upgrade", location, "--revision", "0099", code=1)
    before = result("status", location, code=3)
    assert (before["kind"], before["revision"], before["version"]) == ("older", "0028", 28)
    assert "0031" in before["upgrade"]
    assert "not current" in run("check", location, code=1)
    assert result("upgrade", location)["revision"] == "0031"
    asyncio.run(write(location))

    status = result("status", location)
    assert (status["kind"], status["upgrade"]) == ("current", "nothing")
    assert status["bytes"] > 0
    assert "messages" in status["rows"]
    assert "nothing" in run("status", location)
    assert result("check", location)["problems"] == []
    assert "none" in run("check", location)

    execute(location, "UPDATE hermes_session_recency SET last_active = 1")
    (problem,) = result("check", location, code=3)["problems"]
    assert problem.startswith("recency: 1 sessions")
    assert result("check", location, "--repair")["problems"] == []
    execute(location, "DROP INDEX idx_messages_session")
    assert result("check", location, code=3)["problems"] == [
        "schema: add_index: idx_messages_session"
    ]
    assert result("check", location, "--repair")["problems"] == []


def test_damage_of_a_file_is_found(make_location: Callable[..., str]) -> None:
    location = make_location("sqlite")
    asyncio.run(write(location))
    execute(location, "DELETE FROM messages_fts_trigram_data WHERE id > 10")
    with closing(sqlite_driver.module().connect(location, isolation_level=None)) as raw:
        raw.execute("UPDATE messages SET session_id = 'gone'")
    execute(location, "UPDATE hermes_session_recency SET session_id = session_id")
    problems = result("check", location, code=3)["problems"]
    assert "references: 1 rows of messages -> sessions: no target" in problems
    assert any(problem.startswith("search: messages_fts_trigram") for problem in problems)


def test_settings_of_the_index_are_no_problem(
    make_location: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_HOME", str(tmp_path))
    for settings in (
        "sessions: {trigram_fts: false}",
        "database: {sqlite: {search_indexing: deferred}}",
    ):
        (tmp_path / "config.yaml").write_text(settings)
        location = make_location("sqlite")
        asyncio.run(write(location))
        assert result("check", location)["problems"] == []
    assert result("status", location)["to_be_indexed"] == 1


def test_a_damaged_page_is_a_finding(make_location: Callable[..., str]) -> None:
    location = make_location("sqlite")
    asyncio.run(write(location))
    fetch = Raw(location).fetch
    ((size,),) = asyncio.run(fetch("PRAGMA page_size"))
    named = "SELECT rootpage FROM sqlite_schema WHERE name = 'messages'"
    ((page,),) = asyncio.run(fetch(named))
    content = bytearray(Path(location).read_bytes())
    content[(page - 1) * size : page * size] = b"\xff" * size
    Path(location).write_bytes(content)
    problems = result("check", location, code=3)["problems"]
    assert any(problem.startswith("integrity: ") for problem in problems)
    assert "sessions recover" in run("status", location, code=1)


def test_backup_is_a_usable_copy(make_location: Callable[..., str], tmp_path: Path) -> None:
    location = make_location("sqlite")
    asyncio.run(write(location))
    named = tmp_path / "copy.db"
    assert result("backup", location, "--to", str(named))["backup"] == str(named)
    assert "exists" in run("backup", location, "--to", str(named), code=1)
    beside = Path(result("backup", location)["backup"])
    assert beside.name.startswith(Path(location).name)
    assert not list(beside.parent.glob("*.partial"))
    for copy in (named, beside):
        assert copy.stat().st_mode & 0o777 == 0o600
        assert result("check", str(copy))["problems"] == []
        assert asyncio.run(Raw(str(copy)).fetch("SELECT count(*) FROM messages")) == [(1,)]


def test_passwords_are_not_shown_and_failures_are_one_line(
    make_location: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = make_url(make_location("postgresql+asyncpg"))
    location = given.set(password="sesame-42").render_as_string(hide_password=False)
    for command in ("status", "upgrade", "check"):
        assert "sesame" not in run(command, location)
    assert "pg_dump" in run("backup", location, code=1)
    nobody = make_url(location).set(port=1).render_as_string(hide_password=False)
    monkeypatch.setenv("HERMES_DATABASE_URL", nobody)
    for command in ("status", "upgrade", "adopt", "check"):
        shown = run(command, code=1)
        assert shown.startswith("hermes-orm: postgresql+asyncpg://")
        assert shown.count("\n") == 1
        assert "sesame" not in shown
    assert "no such file" in run("status", "/no/such/state.db", code=1)
    monkeypatch.delenv("HERMES_DATABASE_URL")
    monkeypatch.setenv("HERMES_HOME", "/no/such/home")
    assert "/no/such/home/state.db: there is no" in run("status", code=1)
    assert "is a directory" in run("upgrade", "/", code=1)
    assert "in memory" in run("upgrade", ":memory:", code=1)
    newer = _newer(make_location("sqlite"))
    assert "refused" in run("status", newer, code=3)
    assert "db upgrade" not in run("check", newer, code=1)


def _newer(location: str) -> str:
    execute(location, "UPDATE hermes_alembic_version SET version_num = '0099'")
    return location


def test_adoption_is_reported(historic_stores: Path, tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    path.write_bytes((historic_stores / "state-v16.db").read_bytes())
    assert result("status", str(path), code=3)["version"] == 16
    report = result("adopt", str(path))
    assert (report["version"], report["start"]) == (16, "0016")
    assert Path(report["backup"]).exists()
    assert result("check", str(path))["problems"] == []
    assert asyncio.run(migrations.current(str(path))) == "0031"
