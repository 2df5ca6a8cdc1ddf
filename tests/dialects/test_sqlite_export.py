"""What other programs have left in a file affects the export of its own row: reports A3, B2."""

from collections.abc import Callable
from typing import Any

import pytest

from hermes_orm import SessionDB
from tests.contract.stories import ids
from tests.raw import Raw

CUT = "CAST(x'6869e29c' AS TEXT)"
READ = "hi\ufffd"


@pytest.fixture
def location(make_location: Callable[..., str]) -> str:
    return make_location("sqlite")


async def test_damaged_rows(db: SessionDB, raw: Raw, caplog: pytest.LogCaptureFixture) -> None:
    for session_id in ("bad", "ok", "late"):
        await db.create_session(session_id, "cli", system_prompt=session_id)
        await db.append_message(session_id, "user", "hello")
    await raw.execute(f"UPDATE messages SET content = {CUT} WHERE session_id = 'bad'")
    await raw.execute(f"UPDATE system_prompts SET prompt = {CUT} WHERE prompt = 'bad'")
    await raw.execute("UPDATE sessions SET started_at = 'not-a-time' WHERE id = 'late'")
    exports: list[Any] = [
        await db.export_all(),
        [session async for session in db.iter_export()],
        [await db.export_session(session_id) for session_id in ("bad", "ok", "late")],
    ]
    for exported in exports:
        sessions = {session["id"]: session for session in exported}
        assert sorted(ids(exported)) == ["bad", "late", "ok"]
        assert sessions["bad"]["messages"][0]["content"] == READ
        assert sessions["bad"]["system_prompt"] == READ
        assert sessions["ok"]["messages"][0]["content"] == "hello"
        assert sessions["late"]["started_at"] is None
    warned = [record.getMessage() for record in caplog.records]
    assert any("is no UTF-8" in text for text in warned)
    assert any("'late' is no time" in text for text in warned)


async def test_file_without_own_objects_read_only(tmp_path: Any, db: SessionDB, raw: Raw) -> None:
    """Another program's file has no recency table; a read-only store does not make one."""
    await db.create_session("s", "cli")
    await db.append_message("s", "user", "x", timestamp=5.0)
    await db.close()
    await raw.execute("DROP TABLE hermes_session_recency")
    async with SessionDB(db.db_path, read_only=True) as reader:
        exported = await reader.export_all()
        assert [session["last_active"] for session in exported] == [5.0]
        assert [session["id"] async for session in reader.iter_export()] == ["s"]
