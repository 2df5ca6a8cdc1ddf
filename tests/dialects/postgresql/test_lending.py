"""A host that brings its own SQL gets a connection of the store, in a transaction."""

import pytest
from sqlalchemy import func, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from hermes_orm import SessionDB
from hermes_orm.models import StateMeta


async def add(connection: AsyncConnection) -> None:
    await connection.execute(insert(StateMeta).values(key="host", value="kept"))


async def count(connection: AsyncConnection) -> int:
    result = await connection.execute(
        select(func.count()).select_from(StateMeta).where(StateMeta.key == "host")
    )
    return result.scalar_one()


async def test_write_commits_and_read_sees_it(db: SessionDB) -> None:
    assert await db._write(add) is None
    assert await db._read(count) == 1
    assert await db.get_meta("host") == "kept"


async def test_an_error_undoes_everything_and_the_connection_stays_usable(db: SessionDB) -> None:
    async def add_and_fail(connection: AsyncConnection) -> None:
        await add(connection)
        raise LookupError("gone")

    with pytest.raises(LookupError, match="gone"):
        await db._write(add_and_fail)
    await db._read(add)  # nothing is committed by a read
    assert await db._read(count) == 0


async def test_a_read_only_store_lends_for_reading_only(location: str, db: SessionDB) -> None:
    assert db._read_only is False
    await db._write(add)
    async with SessionDB(location, read_only=True) as reader:
        assert reader._read_only is True
        assert await reader._read(count) == 1
        with pytest.raises(PermissionError, match="read_only"):
            await reader._write(add)


def test_a_sqlite_store_has_no_such_names() -> None:
    db = SessionDB(":memory:")  # engine 38
    assert not hasattr(db, "_read") and not hasattr(db, "_write")
    assert getattr(db, "_read", None) is None
