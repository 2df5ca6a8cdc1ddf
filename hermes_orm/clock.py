"""The wall clock, in one place so that a test can set it."""

from __future__ import annotations

import time


def now() -> float:
    """Return the current Unix time in seconds."""
    return time.time()
