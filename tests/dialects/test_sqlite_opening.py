"""Opening a SQLite file: all of the schema, or nothing."""

from pathlib import Path

import pytest

from hermes_orm import SessionDB
from hermes_orm.dialects.sqlite import ddl, driver


async def test_a_schema_is_created_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = ddl.create_head

    def fail(connection: object) -> None:
        create(connection)  # type: ignore[arg-type]
        raise KeyError("power cut")

    monkeypatch.setattr(ddl, "create_head", fail)
    db = SessionDB(tmp_path / "state.db")
    with pytest.raises(KeyError):
        await db.session_count()
    connection = driver.module().connect(tmp_path / "state.db")
    assert connection.execute("SELECT name FROM sqlite_master").fetchall() == []
    connection.close()

    monkeypatch.undo()
    assert await db.session_count() == 0
    await db.close()
