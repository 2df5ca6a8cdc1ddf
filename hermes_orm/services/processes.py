"""Which holders of leases are gone: those whose text names a process that does not exist."""

from __future__ import annotations

import os
import re
from typing import Final

_PROCESS_ID: Final = re.compile(r"(?:\A|:)pid=([0-9]{1,19})(?::|\Z)")


def is_gone(holder: str) -> bool:
    """Whether a holder such as `pid=123:turn=...` names a process of this host that has ended.

    False in any doubt: without a process id, or where only the system could tell.
    """
    named = _PROCESS_ID.search(holder)
    process_id = int(named[1]) if named else 0
    if not process_id or os.name != "posix":  # elsewhere, signal 0 is a real one
        return False
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):  # it is somebody else's; no process has such an id
        return False
    return False
