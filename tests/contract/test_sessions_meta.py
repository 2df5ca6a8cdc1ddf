"""Key/value settings: sessions.md section 11."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiosqlite
import asyncpg
import psycopg
import pytest
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine


async def test_value_is_stored_and_replaced(db: Any) -> None:
    assert await db.get_meta("k") is None
    for value in ("v", "w"):
        assert await db.set_meta("k", value) is None
        assert await db.get_meta("k") == value
    await db.set_meta("k", None)
    assert await db.get_meta("k") is None


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (5, "5"),
        (1.5, "1.5"),
        (True, "1"),
        (2**70, str(2**70)),
        ("", ""),
        ("a\0b", "a\ufffdb"),
        ("\ud800", "\ufffd"),
    ],
)
async def test_value_is_text(db: Any, value: Any, stored: str) -> None:
    await db.set_meta("k", value)
    assert await db.get_meta("k") == stored


@pytest.mark.parametrize("value", [b"x", [], {}, object()])
async def test_other_values_are_refused(db: Any, value: Any) -> None:
    with pytest.raises(TypeError, match="state_meta"):
        await db.set_meta("k", value)
    assert await db.get_meta("k") is None


@pytest.mark.parametrize("key", [None, "k\0", "k\ud800"])
async def test_key_that_cannot_be_stored_is_refused(db: Any, key: Any) -> None:
    with pytest.raises(ValueError, match="key"):
        await db.set_meta(key, "v")
    assert await db.get_meta(key) is None


async def test_long_keys_are_keys(db: Any) -> None:
    await db.set_meta("k" * 1024, "v")
    assert await db.get_meta("k" * 1024) == "v"


async def test_concurrent_writers_of_one_key(db: Any, open_store: Any, raw: Any) -> None:
    stores = [db, open_store()]
    await asyncio.gather(*(stores[n % 2].set_meta("race", n) for n in range(8)))
    ((value,),) = await raw.fetch("SELECT value FROM state_meta WHERE key = 'race'")
    assert value in set("01234567")


# A transaction of the caller


@asynccontextmanager
async def sqlalchemy_connection(location: str) -> AsyncIterator[Any]:
    is_url = location.startswith("postgresql")
    engine = create_async_engine(location if is_url else f"sqlite+aiosqlite:///{location}")
    async with engine.connect() as connection:
        yield connection
    await engine.dispose()


@asynccontextmanager
async def sqlalchemy_session(location: str) -> AsyncIterator[Any]:
    async with sqlalchemy_connection(location) as connection, AsyncSession(connection) as session:
        yield session


@asynccontextmanager
async def driver_connection(location: str) -> AsyncIterator[Any]:
    if location.startswith("postgresql+asyncpg"):
        connection = await asyncpg.connect(location.replace("+asyncpg", ""))
        await connection.execute("BEGIN")
        yield connection
    elif location.startswith("postgresql"):
        connection = await psycopg.AsyncConnection.connect(location.replace("+psycopg", ""))
        yield connection
    else:
        connection = await aiosqlite.connect(location)
        yield connection
    await connection.close()


JOINED = [sqlalchemy_connection, sqlalchemy_session, driver_connection]


@pytest.mark.parametrize("joined", JOINED)
async def test_write_joins_a_transaction_of_the_caller(db: Any, location: str, joined: Any) -> None:
    assert await db.get_meta("k") is None
    async with joined(location) as cursor:
        await db.set_meta("k", 5, cursor=cursor)
        assert await db.get_meta("k") is None
        await (cursor.commit() if hasattr(cursor, "commit") else cursor.execute("COMMIT"))
    assert await db.get_meta("k") == "5"


@pytest.mark.parametrize("joined", JOINED)
async def test_write_is_rolled_back_with_the_caller(db: Any, location: str, joined: Any) -> None:
    await db.set_meta("k", "before")
    async with joined(location) as cursor:
        await db.set_meta("k", "after", cursor=cursor)
    assert await db.get_meta("k") == "before"


async def test_read_only_store_writes_nothing(db: Any, open_store: Any, location: str) -> None:
    await db.set_meta("k", "v")
    replica = open_store(read_only=True)
    async with sqlalchemy_connection(location) as cursor:
        for options in ({}, {"cursor": cursor}):
            with pytest.raises(PermissionError, match="read-only"):
                await replica.set_meta("k", "w", **options)
    assert await replica.get_meta("k") == "v"
