"""What has to hold after a fault of the server: the error, the rows, the connections."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy.exc
from sqlalchemy import make_url

from hermes_orm import SessionDB, classify_persistence_error
from hermes_orm.dialects.postgresql import errors
from tests.raw import Raw

PASSWORD = "s3cret-password"
SECRET = "what nobody else may read"

OTHERS = (
    "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() "
    "AND application_name <> 'the test'"
)


@pytest.fixture(params=["postgresql+asyncpg", "postgresql+psycopg"])
def location(request: pytest.FixtureRequest, make_location: Callable[..., str]) -> str:
    """DSN of a fresh store on either driver, with a password that no error may show."""
    url = make_url(make_location(request.param))
    return url.set(password=url.password or PASSWORD).render_as_string(hide_password=False)


@pytest.fixture
def raw(location: str) -> Raw:
    """SQL of the test itself, which spares its own connection."""
    return Raw(f"{location}?application_name=the test")


async def terminate(raw: Raw) -> int:
    """End every connection to the database but the test's own; return how many that were."""
    ended = await raw.fetch(f"SELECT count(pg_terminate_backend(pid, 5000)) {OTHERS}")
    return int(ended[0][0])


async def connections(raw: Raw, condition: str = "true") -> int:
    """Return how many connections there are to the database but the test's own."""
    return int((await raw.fetch(f"SELECT count(*) {OTHERS} AND {condition}"))[0][0])


async def until(raw: Raw, condition: str, count: int = 1) -> None:
    """Wait until so many connections meet a condition."""
    for _ in range(200):
        if await connections(raw, condition) >= count:
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"no {count} connections with {condition}")


def assert_told(
    error: BaseException, sqlstate: str | None = None, cause: str = "unknown"
) -> BaseException:
    """Check the class of a fault's error, and that nothing that it leads to shows too much."""
    assert isinstance(error, sqlalchemy.exc.DBAPIError), repr(error)
    assert isinstance(error, sqlite3.DatabaseError)
    assert classify_persistence_error(error) == cause
    if sqlstate is not None:
        assert getattr(error.orig, "sqlstate", None) == sqlstate
    for link in _chain(error):
        is_ours = isinstance(link, errors.StoreError | errors.ServerError)
        assert is_ours or not errors.is_from_driver(link), repr(link)
        text = f"{link!r} {link} {vars(link)}"
        for secret in (PASSWORD, SECRET, "INSERT INTO", "FROM ", "$1", "%("):
            assert secret not in text
    return error


def _chain(error: BaseException | None) -> list[BaseException]:
    return [] if error is None else [error, *_chain(error.__cause__), *_chain(error.__context__)]


async def assert_usable(db: SessionDB, raw: Raw) -> None:
    """Check that a store works as if nothing had been, and holds nothing."""
    await db.set_meta("after the fault", "works")
    assert await db.get_meta("after the fault") == "works"
    async with db.transaction() as unit:
        await unit.set_meta("after the fault", "works in a block")
    transport: Any = db.database._transport
    for _ in range(100):  # what a store does by itself may be under way
        if transport._permits._taken == 0:
            break
        await asyncio.sleep(0.02)
    assert transport._permits._taken == transport._engine.pool.checkedout() == 0
    assert await connections(raw, "state LIKE 'idle in transaction%'") == 0
