"""`hermes-orm demo`: what a first user sees, on every driver, and what a wrong argument says."""

import asyncio
import os
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import make_url
from typer.testing import CliRunner

from hermes_orm import SessionDB
from hermes_orm.cli import app

ROOT = Path(__file__).parents[1]
SESSION = re.compile(r"^Session: (demo-\S+)$", re.MULTILINE)


def session_of(output: str) -> str:
    found = SESSION.search(output)
    assert found, output
    return found[1]


async def roles(location: str, session_id: str) -> list[str]:
    async with SessionDB(location) as db:
        return [row["role"] for row in await db.get_messages(session_id)]


def test_demo_tells_what_it_recorded_resumed_and_found(location: str) -> None:
    result = CliRunner().invoke(app, ["demo", "--url", location])
    assert (result.exit_code, result.stderr) == (0, "")
    for text in ("terminal(command='df -h /backup')", "请用中文总结一下", "(image_url)"):
        assert text in result.stdout
    searches = result.stdout.partition("3. Searched")[2]
    assert re.search(r"snapshots +a word +assistant ", searches)
    assert re.search(r'"backup disk" +a phrase +assistant ', searches)
    assert re.search(r"备份磁盘 +Chinese +assistant ", searches)
    assert "nothing" not in searches
    assert "\x1b" not in result.output  # no colours in a pipe


def test_each_run_leaves_a_session_of_its_own_in_the_named_store(location: str) -> None:
    outputs = [CliRunner().invoke(app, ["demo", "--path", location]).stdout for _ in range(2)]
    first, second = (output.partition("3. Searched")[2].split("\n\n")[0] for output in outputs)
    assert first == second  # the second run does not show what the first one left
    for session_id in map(session_of, outputs):
        seen = asyncio.run(roles(location, session_id))
        assert seen == ["user", "assistant", "tool", *["assistant", "user"] * 2, "assistant"]


@pytest.mark.parametrize("keep", [[], ["--keep"]])
def test_demo_uses_a_temporary_file_and_no_home(
    tmp_path: Path, hermes_home: Path, keep: list[str]
) -> None:
    command = [sys.executable, "-W", "error", "-m", "hermes_orm", "demo", *keep]
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"Store:   {tmp_path}" in done.stdout
    assert len(list(tmp_path.rglob("demo.db"))) == len(keep)
    assert len(list(tmp_path.iterdir())) == len(keep)
    assert not hermes_home.exists()


@pytest.mark.parametrize("driver", ["postgresql+asyncpg", "postgresql+psycopg"])
def test_a_server_that_does_not_answer_is_one_line_without_password(driver: str) -> None:
    line = failure(f"{driver}://sam:pa55word@127.0.0.1:1/hermes")
    assert f"{driver}://sam:***@127.0.0.1:1/hermes: " in line
    assert "pa55word" not in line


@pytest.mark.parametrize("location", ["postgresql+asyncpg", "postgresql+psycopg"], indirect=True)
def test_a_database_that_does_not_exist_is_one_line(location: str) -> None:
    url = make_url(location).set(database="no_such_database")
    assert '"no_such_database" does not exist' in failure(url.render_as_string(hide_password=False))


def test_a_driver_that_is_missing_is_named_even_when_the_password_is_part_of_the_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    line = failure("postgresql+psycopg://postgres:postgres@127.0.0.1/hermes")
    assert "postgresql+psycopg://postgres:***@127.0.0.1/hermes: " in line
    assert "pip install 'hermes-orm[psycopg]'" in line


def test_a_driverless_url_is_one_line_that_names_the_accepted_forms() -> None:
    line = failure("postgresql://sam:pa55word@127.0.0.1/hermes")
    assert "postgresql+psycopg://" in line
    assert "pa55word" not in line


def test_a_foreign_file_is_one_line_and_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "foreign.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE sessions (id INTEGER PRIMARY KEY)")
    connection.close()
    before = path.read_bytes()
    assert "not a Hermes state database" in failure(str(path))
    assert path.read_bytes() == before


def test_a_folder_in_place_of_a_file_is_one_line_that_names_it(tmp_path: Path) -> None:
    assert f"{tmp_path}: unable to open database file" in failure(str(tmp_path))


def test_a_store_in_memory_cannot_be_resumed() -> None:
    assert "give it a file" in failure(":memory:")


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "file" in failure(str(tmp_path / "file" / "state.db"))


def failure(location: str) -> str:
    """Run the demo in vain; return the one line that it says."""
    result = CliRunner().invoke(app, ["demo", "--url", location])
    assert (result.exit_code, result.stdout) == (1, "")
    assert re.fullmatch(r"hermes-orm: .+\n", result.stderr)
    return result.stderr


def test_usage_errors_end_with_2() -> None:
    assert CliRunner().invoke(app, ["demo", "--no-such-option"]).exit_code == 2
    assert CliRunner().invoke(app, ["no-such-command"]).exit_code == 2


def test_version() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert result.exit_code == 0
    assert result.stdout.startswith("hermes-orm ")


def test_without_the_extra_the_command_says_what_to_install() -> None:
    code = "import sys; sys.modules['typer'] = None; from hermes_orm.__main__ import main; main()"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert "pip install 'hermes-orm[cli]'" in done.stderr
    assert done.stderr.count("\n") == 1
