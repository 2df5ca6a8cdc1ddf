"""Which process this is, and which of those that left their names behind are gone."""

from __future__ import annotations

import os
import re
import secrets
import socket
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

_PROCESS_ID: Final = re.compile(r"(?:\A|:)pid=([0-9]{1,19})(?::|\Z)")


@dataclass(frozen=True, slots=True)
class Process:
    """A process, as rows name their owner."""

    id: int
    started_at: int | None
    """In ticks since the host was booted; None where the system does not tell."""
    instance: str
    """Differs from that of every other process, also of one that gets the same id later."""
    host: str
    installation: str
    """Where process ids mean the same: one boot of a system, one namespace of its processes."""

    def params(self) -> dict[str, Any]:
        """Return it as the parameters of statements."""
        return {
            "owner_pid": self.id,
            "owner_started_at": self.started_at,
            "instance": self.instance,
            "host": self.host,
            "installation": self.installation,
        }


def this_process() -> Process:
    """Return this process; another one after a fork."""
    return _process(os.getpid())


@cache
def _process(process_id: int) -> Process:
    state = _state(process_id)
    return Process(
        id=process_id,
        started_at=state and state[1],
        instance=f"{process_id}:{secrets.token_hex(8)}",
        host=socket.gethostname(),
        installation=_installation(),
    )


def is_ended(process_id: int, started_at: int | None) -> bool:
    """Whether a process of this host has ended; False in any doubt.

    A process that has its id now is another one if it started at another time.
    """
    if not _exists(process_id):
        return True
    state = _state(process_id)
    if state is None:
        return False
    is_another = started_at is not None and state[1] != started_at
    return is_another or state[0] in "ZX"  # dead, and nobody has asked for its exit code


def is_gone(holder: str) -> bool:
    """Whether a holder such as `pid=123:turn=...` names a process of this host that has ended.

    False in any doubt: without a process id, or where only the system could tell.
    """
    named = _PROCESS_ID.search(holder)
    process_id = int(named[1]) if named else 0
    return process_id > 0 and not _exists(process_id)


def _exists(process_id: int) -> bool:
    if os.name != "posix" or process_id <= 0:  # elsewhere, signal 0 is a real one
        return True
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # it is somebody else's; no process has such an id
        return True
    return True


def _state(process_id: int) -> tuple[str, int] | None:
    """Return the state and start time of a process; None where the system does not tell."""
    with suppress(OSError, ValueError, IndexError):
        line = Path(f"/proc/{process_id}/stat").read_text(errors="replace")
        fields = line.rpartition(")")[2].split()  # its name, in brackets, may hold anything
        return fields[0], int(fields[19])
    return None


def _installation() -> str:
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}:{os.stat('/proc/self/ns/pid').st_ino}"
    return ""
