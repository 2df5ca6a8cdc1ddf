"""The network between a store and its server: notice that nobody is at the other end any more."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

ALIVE: Final = {
    "TCP_KEEPIDLE": 30,
    "TCP_KEEPINTVL": 10,
    "TCP_KEEPCNT": 3,
    "TCP_USER_TIMEOUT": 60_000,  # in ms
}
"""A server that is gone without a word is noticed after a minute; else it is hours, or never."""


def watch(driver: Any) -> None:
    """Have the operating system ask now and then whether a connection's other end is there."""
    with _socket(driver) as line:
        if line.family not in (socket.AF_INET, socket.AF_INET6):
            return
        line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in ALIVE.items():
            if (option := getattr(socket, name, None)) is not None:  # not on every system
                line.setsockopt(socket.IPPROTO_TCP, option, value)


def hang_up(driver: Any) -> None:
    """End a connection without a word to the server: whoever waits for it gets an error."""
    if is_closed(driver):
        return
    if hasattr(driver, "terminate"):  # asyncpg
        driver.terminate()
        return
    with _socket(driver) as line:
        try:
            line.shutdown(socket.SHUT_RDWR)
        except OSError:  # the other end was faster
            return


@contextmanager
def answered_within(driver: Any, seconds: float) -> Iterator[None]:
    """Hang up when the block takes longer."""
    timer = asyncio.get_running_loop().call_later(seconds, hang_up, driver)
    try:
        yield
    finally:
        timer.cancel()


def is_closed(driver: Any) -> bool:
    """Whether a driver's connection is known to be closed; asks nobody."""
    closed = getattr(driver, "is_closed", None)  # asyncpg; psycopg has an attribute
    return bool(closed() if closed is not None else driver.closed)


def _socket(driver: Any) -> socket.socket:
    """Return a handle of a connection's socket, to be closed."""
    if hasattr(driver, "fileno"):  # psycopg
        return socket.socket(fileno=socket.dup(driver.fileno()))
    return socket.socket(fileno=socket.dup(driver._transport.get_extra_info("socket").fileno()))
