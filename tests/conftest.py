"""Fixtures: a store on every driver, each test on its own copy of a template.

The contract tests know only what is defined here: `db`, `open_store`, `location`, `raw`, `clock`.
"""

import asyncio
import contextlib
import itertools
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import make_url

from hermes_orm import SessionDB
from tests.postgres_copies import Copies
from tests.postgres_server import PostgresServer, PostgresUnavailable, start
from tests.raw import Raw

pytest_plugins = ["tests.foreign"]

NOBODY = 65534
"""An unprivileged user of every system."""
DRIVERS = ["sqlite", "postgresql+asyncpg", "postgresql+psycopg"]
HISTORIC_STORES = "HERMES_ORM_HISTORIC_STORES"
NO_HISTORIC_STORES = f"{HISTORIC_STORES} does not name the folder of stores of earlier releases"

served = pytest.StashKey[PostgresServer]()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Start one server for all workers of pytest-xdist."""
    try:
        server = node.config.stash.get(served, None) or start()
        node.config.stash[served] = server
        url = server.url.render_as_string(hide_password=False)
        node.workerinput["postgres"] = (url, server.prefix)
    except PostgresUnavailable as error:
        node.workerinput["postgres_unavailable"] = str(error)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop the server that this process started."""
    if server := config.stash.get(served, None):
        server.stop()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List the tests that lacked old stores."""
    skipped = terminalreporter.stats.get("skipped", [])
    reports = [report for report in skipped if NO_HISTORIC_STORES in str(report.longrepr)]
    if reports:
        terminalreporter.section(f"{len(reports)} tests did not run", yellow=True)
        terminalreporter.line(f"{NO_HISTORIC_STORES}:")
        for name in sorted({report.nodeid.partition("[")[0] for report in reports}):
            terminalreporter.line(f"  {name}")


@pytest.fixture(scope="session")
def postgres_server(request: pytest.FixtureRequest) -> PostgresServer:
    """The run's PostgreSQL server, shared by all workers."""
    config = request.config
    given = getattr(config, "workerinput", {})
    if "postgres" in given:
        url, prefix = given["postgres"]
        return PostgresServer(make_url(url), prefix)
    try:
        if "postgres_unavailable" in given:
            raise PostgresUnavailable(given["postgres_unavailable"])
        config.stash[served] = start()
    except PostgresUnavailable as error:
        pytest.fail(str(error), pytrace=False)
    return config.stash[served]


def build_store(location: str) -> None:
    """Have the product create its schema on an empty database."""

    async def build() -> None:
        async with SessionDB(location) as db:
            await db.get_meta("any")

    with ThreadPoolExecutor(1) as thread:  # whoever asks may be inside an event loop
        thread.submit(asyncio.run, build()).result()


@pytest.fixture(scope="session")
def postgres_template(postgres_server: PostgresServer) -> str:
    """Name of a database that the product created."""
    return postgres_server.template(build_store)


@pytest.fixture(scope="session")
def postgres_copies(postgres_server: PostgresServer, postgres_template: str) -> Iterator[Copies]:
    """Copies of the template, for one test after another."""
    copies = Copies(postgres_server, postgres_template)
    yield copies
    copies.close()


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite file that the product created."""
    path = tmp_path_factory.mktemp("template") / "state.db"
    build_store(str(path))
    return path


file_numbers = itertools.count(1)


@pytest.fixture
def make_location(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., str]]:
    """`make_location(driver, empty=False)`: a database of the test's own, gone afterwards."""

    def make(driver: str, *, empty: bool = False) -> str:
        if driver == "sqlite":
            path = tmp_path / f"state-{next(file_numbers)}.db"
            if not empty:
                shutil.copyfile(request.getfixturevalue("sqlite_template"), path)
            return str(path)
        server: PostgresServer = request.getfixturevalue("postgres_server")
        if empty:
            name = server.new_name()
            server.create(name)
            at_the_end.callback(server.drop, name)
        else:
            copies: Copies = request.getfixturevalue("postgres_copies")
            copy = copies.take()
            at_the_end.callback(copies.give_back, copy)
            name = copy.name
        return server.location(name, driver)

    with contextlib.ExitStack() as at_the_end:
        yield make


@pytest.fixture(params=DRIVERS)
def location(request: pytest.FixtureRequest, make_location: Callable[..., str]) -> str:
    """Path or DSN of a fresh store; a test that uses it runs on every driver."""
    return make_location(request.param)


@pytest.fixture
async def open_store(location: str) -> AsyncIterator[Callable[..., SessionDB]]:
    """`open_store(**options)`: a further SessionDB on the same database, closed at the end."""
    stores = []

    def open_store(**options: Any) -> SessionDB:
        store = SessionDB(location, **options)
        stores.append(store)
        return store

    yield open_store
    for store in reversed(stores):
        await store.close()


@pytest.fixture
def db(open_store: Callable[..., SessionDB]) -> SessionDB:
    """The store under test."""
    return open_store()


@pytest.fixture
def raw(location: str) -> Raw:
    """SQL on the store's database, for states that no public call can make."""
    return Raw(location)


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self, start: float) -> None:
        self.time = start

    def __call__(self) -> float:
        return self.time

    def advance(self, seconds: float) -> None:
        """Move the clock forward."""
        self.time += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of every store of this test: 2026-01-01T00:00:00Z until moved."""
    clock = Clock(1767225600.0)
    monkeypatch.setattr("hermes_orm.clock.now", clock)
    return clock


@pytest.fixture(autouse=True)
def hermes_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty Hermes home, so that nobody's own configuration is read."""
    home = tmp_path / "home"
    monkeypatch.setenv("HERMES_HOME", str(home))
    return home


@pytest.fixture
def unprivileged(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of its own for a user to whom permissions apply, as whom the test runs."""
    folder = Path(tempfile.mkdtemp(prefix="hermes-orm-"))
    uid = os.geteuid()
    if uid == 0:
        os.chown(folder, NOBODY, -1)
        os.seteuid(NOBODY)
    monkeypatch.setenv("HERMES_HOME", str(folder / "home"))
    (folder / "home").mkdir()
    try:
        yield folder
    finally:
        os.seteuid(uid)
        for name in [folder, *folder.rglob("*")]:
            name.chmod(0o700)
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def historic_stores() -> Path:
    """Folder of database files that earlier releases wrote. Copy a file before opening it."""
    folder = os.environ.get(HISTORIC_STORES)
    if not folder:
        pytest.skip(NO_HISTORIC_STORES)
    return Path(folder)
