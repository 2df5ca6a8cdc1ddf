"""`alembic upgrade head` and a store's first opening make the same database, or none."""

import asyncio
import os
import shutil
import subprocess
import sys
import zipfile
from argparse import Namespace
from collections.abc import Callable
from contextlib import closing
from io import StringIO
from pathlib import Path

import psycopg
import pytest
from alembic import command
from alembic.config import Config

from hermes_orm import SessionDB, migrations
from hermes_orm.dialects.sqlite import driver as sqlite_driver
from hermes_orm.errors import SchemaError
from tests.conftest import DRIVERS
from tests.migrations.catalogue import catalogue
from tests.raw import Raw

CHECKOUT = Path(__file__).parents[2]


@pytest.fixture(params=DRIVERS)
def empty(request: pytest.FixtureRequest, make_location: Callable[..., str]) -> str:
    """An empty database."""
    return make_location(request.param, empty=True)


@pytest.fixture
def created(empty: str, make_location: Callable[..., str]) -> str:
    """A database of the same kind that a store created."""
    return make_location(empty.partition(":")[0] if "://" in empty else "sqlite")


def alembic(*arguments: str, url: str | None = None) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k != "HERMES_DATABASE_URL"}
    if url is not None:
        environment["HERMES_DATABASE_URL"] = url
    return subprocess.run(
        [sys.executable, "-m", "alembic", *arguments],
        cwd=CHECKOUT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )


def script_for(url: str) -> str:
    written = StringIO()
    options = Namespace(x=[f"url={url}"])
    config = Config(CHECKOUT / "alembic.ini", output_buffer=written, cmd_opts=options)
    command.upgrade(config, "head", sql=True)
    return written.getvalue()


async def objects(location: str) -> list[tuple[str]]:
    raw = Raw(location)
    if raw.is_postgres:
        return await raw.fetch(
            "SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace"
        )
    return await raw.fetch("SELECT name FROM sqlite_schema")


async def test_upgrade_equals_a_store_s_own_creation(empty: str, created: str) -> None:
    await migrations.upgrade(empty)
    assert await catalogue(empty) == await catalogue(created)


async def test_script_equals_a_store_s_own_creation(empty: str, created: str) -> None:
    script = script_for(empty)
    if empty.startswith("postgresql"):
        with psycopg.connect(empty.replace("+asyncpg", "").replace("+psycopg", "")) as connection:
            connection.execute(script.encode())
    else:
        with closing(sqlite_driver.module().connect(empty)) as connection:
            connection.executescript(script)
    assert await catalogue(empty) == await catalogue(created)


async def test_store_uses_an_upgraded_database_as_it_is(empty: str) -> None:
    await migrations.upgrade(empty)
    before = await catalogue(empty)
    async with SessionDB(empty) as db:
        await db.set_meta("key", "value")
        assert await db.get_meta("key") == "value"
    assert (await catalogue(empty))["revision"] == before["revision"]


async def test_upgrade_of_a_store_changes_nothing(created: str) -> None:
    before = await catalogue(created)
    await migrations.upgrade(created)
    assert await catalogue(created) == before


async def test_current_tells_the_revision(empty: str, created: str) -> None:
    if empty.startswith("postgresql"):
        assert await migrations.current(empty) is None
    assert await migrations.current(created) == "0031"


async def test_simultaneous_upgrades_make_one_schema(empty: str, created: str) -> None:
    processes = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "alembic", "-x", f"url={empty}", "upgrade", "head"),
            cwd=CHECKOUT,
            stderr=asyncio.subprocess.PIPE,
        )
        for _ in range(2)
    ]
    outputs = [await process.communicate() for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    assert await catalogue(empty) == await catalogue(created)


async def test_failed_upgrade_leaves_nothing_behind(
    empty: str, created: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(connection: object) -> None:
        raise LookupError("broken revision")

    for database in ("sqlite", "postgresql"):
        monkeypatch.setattr(f"hermes_orm.dialects.{database}.frozen.create_derived_0031", fail)
    with pytest.raises(LookupError):
        await migrations.upgrade(empty)
    assert await objects(empty) == []
    monkeypatch.undo()
    await migrations.upgrade(empty)
    assert await catalogue(empty) == await catalogue(created)


async def test_waiting_for_another_migration_is_bounded(
    make_location: Callable[..., str],
) -> None:
    location = make_location("postgresql+asyncpg", empty=True)
    dsn = location.replace("+asyncpg", "") + "?application_name=somebody"
    with psycopg.connect(dsn, autocommit=True) as other:
        other.execute("SELECT pg_advisory_lock(731948251)")
        with pytest.raises(SchemaError, match=rf"locked.*{other.info.backend_pid}.*somebody"):
            await migrations.upgrade(location, lock_wait=0.3)
    assert await objects(location) == []


async def test_waiting_for_a_locked_file_is_bounded(make_location: Callable[..., str]) -> None:
    location = make_location("sqlite", empty=True)
    with closing(sqlite_driver.module().connect(location, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(SchemaError, match="locked"):
            await migrations.upgrade(location, lock_wait=0.3)
    assert await objects(location) == []


async def test_foreign_database_is_refused_untouched(empty: str) -> None:
    raw = Raw(empty)
    await raw.execute("CREATE TABLE sessions (name TEXT)")
    before = await objects(empty)
    with pytest.raises(SchemaError, match="nothing was"):
        await migrations.upgrade(empty)
    assert await objects(empty) == before


async def test_file_of_another_program_is_stamped(historic_stores: Path, tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    shutil.copyfile(historic_stores / "state-v31.db", path)
    assert await migrations.current(str(path)) is None
    await migrations.upgrade(str(path))
    assert await migrations.current(str(path)) == "0031"


def test_option_wins_over_environment(tmp_path: Path) -> None:
    done = alembic("-x", f"url={tmp_path / 'a.db'}", "upgrade", "head", url=str(tmp_path / "b.db"))
    assert done.returncode == 0, done.stderr
    assert [path.name for path in tmp_path.glob("*.db")] == ["a.db"]


def test_missing_url_is_explained() -> None:
    done = alembic("upgrade", "head")
    assert done.returncode != 0
    assert "-x url=" in done.stdout and "HERMES_DATABASE_URL" in done.stdout


def test_installed_wheel_migrates_without_a_checkout(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*build, "--wheel-dir", str(tmp_path), str(CHECKOUT)], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)
    ini = site / "hermes_orm" / "_alembic" / "alembic.ini"
    command = [sys.executable, "-m", "alembic", "-c", str(ini), "-x", "url=new.db"]
    subprocess.run(
        [*command, "upgrade", "head"],
        check=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(site)},
    )
    assert asyncio.run(migrations.current(str(tmp_path / "new.db"))) == "0031"
