"""What a forked process must not do with the connections of its parent."""

from __future__ import annotations

import ctypes
import os
from typing import Any, Protocol
from weakref import WeakSet


class Inheritable(Protocol):
    """Something that holds connections, and can let go of them without a word to the other end."""

    def disown(self) -> None:
        """Forget connections that belong to the parent process."""


_holders: WeakSet[Inheritable] = WeakSet()


def watch(holder: Inheritable) -> None:
    """Have `holder.disown()` called in every child that is forked from now on."""
    _holders.add(holder)


def abandon(connections: Any) -> None:
    """Never close what the parent uses, not even when this process ends.

    A driver that closes its copy of a connection ends the parent's session at the server, and
    rolls back in the parent's file.
    """
    if connections is not None:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(connections))


def _in_child() -> None:
    for holder in list(_holders):
        holder.disown()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
