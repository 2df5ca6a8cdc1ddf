"""`copy_database`: both directions, interrupted, refused."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hermes_orm import CopyError, SessionDB
from hermes_orm.cli import app
from hermes_orm.dialects.inspection import findings_of
from hermes_orm.location import locate
from hermes_orm.models.meta import COPY_MARK
from hermes_orm.portability.copying import copy_database
from tests.conftest import DRIVERS
from tests.portability.worlds import fill, first_use, stored
from tests.raw import Raw

MakeLocation = Callable[..., str]


@pytest.mark.parametrize("driver", DRIVERS[1:])
async def test_any_store_is_the_same_after_a_copy_there_and_back(
    make_location: MakeLocation, tmp_path: Path, driver: str
) -> None:
    for seed in range(3):
        source, server = make_location("sqlite"), make_location(driver, empty=True)
        fill(source, seed)
        there = await copy_database(source, server)
        back = await copy_database(server, tmp_path / f"back-{seed}.db")
        assert stored(source) == stored(str(tmp_path / f"back-{seed}.db")), seed
        assert there.tables == back.tables
        assert there.dangling == back.dangling
        assert not (there.converted or there.left_out or back.converted or back.left_out)
        again = await copy_database(source, tmp_path / f"same-{seed}.db")
        assert again.tables == there.tables


@pytest.mark.parametrize("driver", DRIVERS)
async def test_a_copy_is_a_store_like_its_source(make_location: MakeLocation, driver: str) -> None:
    source, target = make_location("sqlite"), make_location(driver, empty=True)
    async with SessionDB(source) as db:
        await db.create_session("a", "cli", model_config={"k": 1})
        await db.create_session("b", "cli", parent_session_id="a")
        for text in ("The cistern is full", [{"type": "text", "text": "蓄水池"}], "nul \0 in it"):
            await db.append_message("b", "user", text)
        await db.append_message("b", "user", "gone")
        await db.rewind_to_message("b", 4)
        before = [
            await db.get_messages("b"),
            await db.list_sessions_rich(),
            await db.get_session("a"),
        ]
    await Raw(source).execute("UPDATE sqlite_sequence SET seq = 40")
    await copy_database(source, target)
    async with SessionDB(target) as db:
        after = [
            await db.get_messages("b"),
            await db.list_sessions_rich(),
            await db.get_session("a"),
        ]
        assert after == before
        for query in ("cistern", "蓄水池"):
            assert [hit["id"] for hit in await db.search_messages(query)]
        assert await db.get_meta(COPY_MARK) is None
        assert await db.fts_rebuild_status() is None
        assert await db.append_message("b", "user", "next") == 41
    assert await findings_of(locate(target), lambda step: None) == []


async def test_values_of_one_database_only_become_the_nearest(
    make_location: MakeLocation,
) -> None:
    source, target = make_location("sqlite"), make_location(DRIVERS[1], empty=True)
    await first_use(source)
    changes = (
        "title = 'a' || char(0) || 'b', started_at = 'soon', ended_at = x'00', user_id = x'414243'"
    )
    await Raw(source).execute(f"UPDATE sessions SET {changes}, input_tokens = 'many'")
    await Raw(source).execute("INSERT INTO compression_locks VALUES (NULL, 'h', 1, 2)")
    await Raw(source).execute("CREATE TABLE others (a)")
    report = await copy_database(source, target)
    async with SessionDB(target) as db:
        session: Any = await db.get_session("s")
    expected = {"title": "a\ufffdb", "started_at": 0.0, "ended_at": None, "user_id": "ABC"}
    assert {key: session[key] for key in expected} == expected
    columns = {"title", "started_at", "ended_at", "user_id", "input_tokens"}
    assert report.converted == {f"sessions.{column}": 1 for column in columns}
    assert report.left_out == ["others", "compression_locks: 1 rows without a key"]


@pytest.mark.parametrize("driver", DRIVERS[:2])
async def test_what_is_in_use_is_refused_and_left_alone(
    make_location: MakeLocation, tmp_path: Path, driver: str
) -> None:
    source, target = make_location("sqlite"), make_location(driver)
    await first_use(target)
    with pytest.raises(CopyError, match="rows in sessions"):
        await copy_database(source, target)
    async with SessionDB(target) as db:
        assert len(await db.get_messages("s")) == 1
        assert await db.get_meta(COPY_MARK) is None
        assert len(await db.search_messages("cistern")) == 1
    with pytest.raises(ValueError, match="the same database"):
        await copy_database(target, target)
    with pytest.raises(ValueError, match="in memory"):
        await copy_database(target, ":memory:")
    with pytest.raises(FileNotFoundError, match="does not exist"):
        await copy_database(tmp_path / "none.db", tmp_path / "new.db")
    assert not (tmp_path / "new.db").exists()


KILLED = """
import asyncio, os, signal, sys
from hermes_orm.portability.copying import copy_database
step, left = sys.argv[3], int(sys.argv[4])
def progress(what, done, total):
    global left
    left -= what == step
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(copy_database(sys.argv[1], sys.argv[2], progress=progress))
"""

KILLED_AT = [
    ("copying messages", 2),
    ("copying messages", 3),
    ("references and recency", 1),
    ("indexing messages", 1),
]


@pytest.mark.parametrize("driver", DRIVERS[:2])
async def test_a_killed_copy_is_completed(make_location: MakeLocation, driver: str) -> None:
    source, other = make_location("sqlite"), make_location("sqlite")
    await first_use(other)
    async with SessionDB(source) as db:
        await db.create_session("s", "cli")
        rows = [{"role": "user", "content": f"number {n}"} for n in range(700)]
        await db.append_messages_batch("s", rows)
    for step, times in KILLED_AT:
        target = make_location(driver, empty=True)
        arguments = [sys.executable, "-c", KILLED, source, target, step, str(times)]
        done = await asyncio.to_thread(subprocess.run, arguments, capture_output=True, cwd=ROOT)
        assert done.returncode == -signal.SIGKILL, (step, done.stderr)
        with pytest.raises(CopyError, match="unfinished copy of"):
            await copy_database(other, target)
        if times == 3:  # the source goes on meanwhile
            async with SessionDB(source) as db:
                await db.append_message("s", "user", "one more")
                await db.set_session_title("s", "new")
        report = await copy_database(source, target)
        assert report.resumed
        assert await findings_of(locate(target), lambda step: None) == []
        async with SessionDB(target) as db, SessionDB(source) as original:
            assert await db.get_session("s") == await original.get_session("s")
            assert await db.get_messages("s") == await original.get_messages("s")
            assert len(await db.search_messages("number 699")) >= 1


ROOT = Path(__file__).parents[2]


async def test_a_target_that_is_written_meanwhile_is_noticed(make_location: MakeLocation) -> None:
    source, target = make_location("sqlite"), make_location(DRIVERS[1], empty=True)
    await first_use(source)
    strange = "INSERT INTO system_prompts (hash, prompt) VALUES ('h', 'p')"

    def progress(what: str, done: int, total: int) -> None:
        if what.startswith("verifying async"):
            Raw(target)._execute(strange, ())

    with pytest.raises(CopyError, match="system_prompts differs"):
        await copy_database(source, target, progress=progress)
    report = await copy_database(source, target)
    assert report.resumed
    assert report.tables["system_prompts"].rows == 0


def test_the_command_copies_and_refuses(make_location: MakeLocation, tmp_path: Path) -> None:
    source, target = make_location("sqlite"), str(tmp_path / "copy.db")
    asyncio.run(first_use(source))
    for code in (0, 1):
        done = CliRunner().invoke(app, ["copy", source, target])
        assert done.exit_code == code, done.output
    assert "rows in sessions" in done.stderr
    assert os.path.getsize(target) > 0
