"""A PostgreSQL server of a test's own, which it may stop, restart and suspend."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import URL

from tests.postgres_server import (
    PostgresServer,
    executable_by,
    find_binaries,
    free_port,
    run_as,
    unprivileged_account,
)

CONNECTIONS = 50
SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "autovacuum": "off",
    "wal_level": "replica",
    "max_connections": CONNECTIONS,
    "superuser_reserved_connections": 0,
    "shared_buffers": "16MB",
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
}

# Ends when its standard input ends, thus also when the tests are killed: no server is left behind.
GUARDIAN = """
bin=$1 folder=$2 options=$3
ctl() { "$bin/pg_ctl" -D "$folder/db" -l "$folder/log" -w "$@" >>"$folder/told" 2>&1 </dev/null; }
stop() { kill -CONT "$(head -n 1 "$folder/db/postmaster.pid")"; ctl -m immediate stop; }
trap 'stop 2>/dev/null; rm -rf "$folder"' EXIT
trap 'exit 1' HUP INT TERM
"$bin/initdb" -D "$folder/db" -U postgres -A trust -E UTF8 --locale=C --no-sync >/dev/null || exit 1
while read -r action mode; do
    case "$action" in
        start | restart) ctl -m "${mode:-fast}" -o "$options" "$action" ;;
        stop) ctl -m "$mode" stop ;;
        *) ctl "$action" ;;
    esac
    echo "$?"
done
"""


class PrivateServer:
    """Started binaries of this machine; `server` creates databases in it."""

    def __init__(self, binaries: Path, folder: Path) -> None:
        account = unprivileged_account()
        if account:
            binaries = executable_by(account, binaries, folder)
            for path in (folder, *folder.rglob("*")):
                os.chown(path, account.pw_uid, account.pw_gid, follow_symlinks=False)
        port = free_port()
        options = " ".join(f"-c {name}={value}" for name, value in SETTINGS.items())
        self._folder = folder
        self._guardian = subprocess.Popen(
            ["/bin/sh", "-c", GUARDIAN, "sh", binaries, folder, f"-p {port} {options}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=folder,
            start_new_session=True,
            **run_as(account),
        )
        url = URL.create("postgresql", "postgres", host="127.0.0.1", port=port, database="postgres")
        self.server = PostgresServer(url)

    def control(self, action: str) -> None:
        """Do what `pg_ctl` does: `start`, `stop MODE`, `restart MODE` or `promote`."""
        assert self._guardian.stdin is not None and self._guardian.stdout is not None
        self._guardian.stdin.write(f"{action}\n")
        self._guardian.stdin.flush()
        assert self._guardian.stdout.readline() == "0\n", (self._folder / "told").read_text()

    def become_standby(self) -> None:
        """Restart as a server in recovery, which takes no writes until it is promoted."""
        (self._folder / "db/standby.signal").touch()
        self.control("restart fast")

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Have the server do nothing at all for a while; its connections stay."""
        first = int((self._folder / "db/postmaster.pid").read_text().split()[0])
        processes = [first, *_children(first)]
        self._signal(processes, signal.SIGSTOP)
        try:
            yield
        finally:
            self._signal(processes, signal.SIGCONT)

    @staticmethod
    def _signal(processes: list[int], number: signal.Signals) -> None:
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, number)

    def close(self) -> None:
        """Stop it and remove its files."""
        self._guardian.communicate(timeout=30)


def _children(process: int) -> list[int]:
    folder = Path(f"/proc/{process}/task/{process}/children")
    return [int(child) for child in folder.read_text().split()]


@contextmanager
def private_server() -> Iterator[PrivateServer | None]:
    """Yield a started server; None where there are no binaries to start."""
    binaries = find_binaries()
    if binaries is None or not Path("/proc/self/task").exists():
        yield None
        return
    folder = Path(tempfile.mkdtemp(prefix="hermes-private-", dir="/tmp"))
    own = PrivateServer(binaries, folder)
    try:
        own.control("start")
        yield own
    finally:
        own.close()
        shutil.rmtree(folder, ignore_errors=True)
