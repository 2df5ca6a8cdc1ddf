"""`recover_session_database`: files that were damaged on purpose."""

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hermes_orm import (
    SessionDB,
    SessionRecoveryError,
    SessionRecoverySafetyError,
    SessionRecoverySourceError,
    inspect_session_database,
    recover_session_database,
    write_recovery_report,
)
from hermes_orm.cli import app
from hermes_orm.dialects.sqlite import driver as sqlite_driver
from tests.portability.worlds import fill, stored

ROOT = Path(__file__).parents[2]
MESSAGES = 400


@pytest.fixture
async def source(make_location: Callable[..., str]) -> Path:
    """A file with sessions, 400 messages on many pages, and a gap in their ids."""
    path = make_location("sqlite")
    async with SessionDB(path) as db:
        for session in ("a", "b"):
            await db.create_session(session, "cli", model_config={"secret": 1})
            rows = [
                {"role": "user", "content": f"{session} {n} " + "word " * 60}
                for n in range(MESSAGES // 2)
            ]
            await db.append_messages_batch(session, rows)
        await db.set_meta("mine", "kept")
    return Path(path)


def pages(path: Path, table: str) -> list[int]:
    """Return the numbers of the leaf pages of a table."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA writable_schema=ON")
        (root,) = connection.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)
        ).fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    octets, found, waiting = path.read_bytes(), [], [root]
    while waiting:
        number = waiting.pop(0)
        page = octets[(number - 1) * size : number * size]
        if page[0] == 13:
            found.append(number)
            continue
        for n in range(int.from_bytes(page[3:5], "big")):
            at = int.from_bytes(page[12 + 2 * n : 14 + 2 * n], "big")
            waiting.append(int.from_bytes(page[at : at + 4], "big"))
        waiting.append(int.from_bytes(page[8:12], "big"))
    return found


def overwrite(path: Path, page: int, octets: bytes, size: int = 4096) -> None:
    with path.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(octets)


async def contents(path: Path) -> dict[int, str]:
    async with SessionDB(str(path)) as db:
        found: dict[int, str] = {}
        for session in await db.list_sessions_rich(limit=50):
            for row in await db.get_messages(session["id"]):
                found[row["id"]] = str(row["content"])
        return found


async def test_a_healthy_file_is_the_same_afterwards(
    make_location: Callable[..., str], tmp_path: Path
) -> None:  # usage 9.39
    source = Path(make_location("sqlite"))
    fill(str(source), seed=1)
    with closing(sqlite_driver.module().connect(str(source))) as connection:
        for table in ("session_model_usage", "messages", "telegram_dm_topic_bindings"):
            connection.execute(
                f"DELETE FROM {table} WHERE session_id NOT IN (SELECT id FROM sessions)"
            )
        changes = "parent_session_id = NULL, system_prompt_hash = NULL, model_config = "
        connection.execute(f"UPDATE sessions SET {changes} iif(id = 's1', '{{no json', '{{}}')")
        connection.commit()
    octets = source.read_bytes()
    told: list[str] = []
    output = tmp_path / "new.db"
    report = await recover_session_database(
        source, output, chunk_size=64, progress_cb=lambda table, done, total: told.append(table)
    )
    assert report["verification"]["errors"] == []
    assert (report["complete"], report["verified"], report["partial"]) == (True, True, False)
    assert report["installed"] is False
    assert report["source_unchanged"]
    assert source.read_bytes() == octets
    assert "messages" in told
    before, after = stored(str(source)), stored(str(output))
    assert before.pop("session_turn_leases") is not None
    assert after.pop("session_turn_leases") == []
    counts = report["verification"]["table_counts"]
    assert counts["delivery_obligations"] == len(before["delivery_obligations"]) > 0
    assert report["semantic_cleanup"] == {"sessions.model_config that was no JSON": 1}
    before["sessions"] = [row.replace("'{no json'", "'{}'") for row in before["sessions"]]
    assert after == before
    assert "no json" not in json.dumps(report)
    assert [path.name for path in tmp_path.glob("new.db*")] == ["new.db"]
    with pytest.raises(SessionRecoverySafetyError, match="exists"):
        await recover_session_database(source, output)
    await write_recovery_report(tmp_path / "report.json", report)
    assert json.loads((tmp_path / "report.json").read_text())["complete"]
    with pytest.raises(FileExistsError):
        await write_recovery_report(tmp_path / "report.json", report)


@pytest.mark.parametrize("damage", ["zeroed page", "garbage in a leaf", "last page", "truncated"])
async def test_what_can_be_read_is_saved_and_nothing_invented(
    source: Path, tmp_path: Path, damage: str
) -> None:
    before = await contents(source)
    leaves = pages(source, "messages")
    if damage == "truncated":
        os.truncate(source, (max(leaves[-3:]) - 1) * 4096)
    elif damage == "garbage in a leaf":
        overwrite(source, leaves[len(leaves) // 2], os.urandom(4096))
    else:
        overwrite(source, leaves[-1 if damage == "last page" else 2], bytes(4096))
    octets = source.read_bytes()
    inspection = await inspect_session_database(source, work_dir=tmp_path)
    assert not inspection["recoverable"]
    with pytest.raises(SessionRecoverySourceError, match="allow_partial"):
        await recover_session_database(source, tmp_path / "strict.db")
    assert not (tmp_path / "strict.db").exists()
    output = tmp_path / "saved.db"
    report = await recover_session_database(source, output, allow_partial=True)
    assert (report["partial"], report["complete"]) == (True, False)
    assert report["verified"], report["verification"]
    assert report["verification"]["loss_detected"]
    assert source.read_bytes() == octets
    after = await contents(output)
    assert after.items() <= before.items()
    assert len(after) >= MESSAGES - 120
    skipped = report["copy"]["messages"]["skipped_row_ids"]
    assert all(any(low <= lost <= high for low, high in skipped) for lost in before.keys() - after)
    async with SessionDB(str(output)) as db:
        assert await db.search_messages("word", limit=1)
        assert await db.get_meta("mine") == "kept"
        assert await db.append_message("a", "user", "next") > MESSAGES


async def test_messages_of_a_lost_session_get_a_placeholder(source: Path, tmp_path: Path) -> None:
    overwrite(source, pages(source, "sessions")[0], bytes(4096))
    output = tmp_path / "saved.db"
    report = await recover_session_database(source, output, allow_partial=True)
    assert report["orphan_cleanup"]["placeholder sessions"] == 2
    assert report["verified"], report["verification"]
    async with SessionDB(str(output)) as db:
        session: Any = await db.get_session("b")
        first = (await db.get_messages("b"))[0]
        assert len(await db.get_messages("b")) == MESSAGES // 2
    expected = ("recovered", "[recovered 2] b", first["timestamp"], MESSAGES // 2)
    keys = ("source", "title", "started_at", "message_count")
    assert tuple(session[key] for key in keys) == expected


async def test_what_is_unsafe_is_refused(source: Path, tmp_path: Path) -> None:
    async with SessionDB(str(source)) as db:
        await db.message_count()
        with pytest.raises(SessionRecoverySafetyError, match="open in this process"):
            await recover_session_database(source, tmp_path / "new.db")
    (tmp_path / "left.db-wal").touch()
    for output in (source, tmp_path / f"{source.name}-wal", tmp_path / "left.db"):
        with pytest.raises(SessionRecoverySafetyError):
            await recover_session_database(source, output)
    with pytest.raises(SessionRecoverySafetyError, match="chunk_size"):
        await recover_session_database(source, tmp_path / "new.db", chunk_size=0)
    with pytest.raises(SessionRecoverySafetyError, match="does not exist"):
        await recover_session_database(tmp_path / "none.db", tmp_path / "new.db")
    (tmp_path / "text.db").write_text("no database at all" * 100)
    with pytest.raises(SessionRecoverySourceError):
        await recover_session_database(tmp_path / "text.db", tmp_path / "new.db")
    assert issubclass(SessionRecoverySafetyError, SessionRecoveryError)
    assert not list(tmp_path.glob("new.db*"))


KILLED = """
import asyncio, os, signal, sys
from hermes_orm import recover_session_database
def progress(table, done, total):
    if table == "messages" and done > 100:
        os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(recover_session_database(sys.argv[1], sys.argv[2], chunk_size=50, progress_cb=progress))
"""


async def test_a_killed_recovery_is_done_again(source: Path, tmp_path: Path) -> None:
    output = tmp_path / "new.db"
    arguments = [sys.executable, "-c", KILLED, str(source), str(output)]
    done = await asyncio.to_thread(subprocess.run, arguments, capture_output=True, cwd=ROOT)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert not output.exists()
    report = await recover_session_database(source, output)
    assert report["complete"]
    assert await contents(output) == await contents(source)
    assert [path.name for path in tmp_path.glob("new.db*")] == ["new.db"]


def test_the_command_and_its_exit_codes(source: Path, tmp_path: Path) -> None:
    def run(*arguments: str, code: int) -> str:
        done = CliRunner().invoke(app, ["sessions", "recover", "--source", *arguments])
        assert done.exit_code == code, (done.output, done.exception)
        return done.output

    file, output = str(source), str(tmp_path / "new.db")
    assert "recoverable" in run(file, "--inspect-only", code=0)
    assert "verified" in run(file, "--output", output, code=0)
    assert json.loads(Path(f"{output}.recovery.json").read_text())["complete"]
    run(file, "--output", output, code=2)  # the report exists
    run(file, "--output", output, "--report", str(tmp_path / "r.json"), code=1)
    run(file, code=2)
    run(file, "--inspect-only", "--allow-partial", code=2)
    run(file, "--inspect-only", "--output", output, code=2)
    overwrite(source, pages(source, "messages")[2], bytes(4096))
    run(file, "--inspect-only", code=1)
    run(file, "--output", str(tmp_path / "b.db"), code=1)
    assert "partial" in run(file, "--output", str(tmp_path / "b.db"), "--allow-partial", code=0)
