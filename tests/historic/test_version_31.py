"""Files that upstream's agent wrote at schema 31 are used as they are."""

import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from hermes_orm import SessionDB
from hermes_orm.dialects.sqlite import driver
from tests.historic.stores import HistoricFile, as_in_sidecar, copied
from tests.raw import Raw

AT_31 = ["state-v31", "upgraded-v06-to-v31", "upgraded-v25-to-v31"]
NEW_MESSAGES: list[dict[str, Any]] = [
    {"role": "user", "content": "Is the cistern full?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c", "function": {"name": "read"}}],
    },
    {"role": "tool", "content": "cistern: 83 %", "tool_name": "read", "tool_call_id": "c"},
    {
        "role": "user",
        "content": [{"type": "text", "text": "请检查蓄水池的水位"}, {"type": "image"}],
    },
    {"role": "assistant", "content": "The cistern is nearly full. 蓄水池的水位正常。"},
]


async def found(db: Any, query: str) -> list[list[str]]:
    """Session and role of each hit, as the sidecars list them."""
    hits = await db.search_messages(query, limit=1000)
    return [list(pair) for pair in sorted({(hit["session_id"], hit["role"]) for hit in hits})]


async def use(db: Any) -> list[Any]:
    """Read a store in every way that there is."""
    sessions = await db.list_sessions_rich(include_children=True, include_archived=True)
    recent = await db.list_sessions_rich(order_by_last_active=True)
    read = [await db.get_messages_as_conversation(row["id"]) for row in sessions]
    return [sessions, recent, read, await found(db, "irrigation"), await found(db, "湿度传感器")]


@pytest.fixture
def file(historic_stores: Path, tmp_path: Path) -> HistoricFile:
    return copied(historic_stores, "state-v31", tmp_path / "v31")


class TestReading:
    """Both ways of opening read the same; read-only opening leaves the file as it is."""

    @pytest.fixture(params=["for writing", "read-only"])
    async def db(self, request: pytest.FixtureRequest, file: HistoricFile) -> AsyncIterator[Any]:
        before = file.folder
        async with SessionDB(file.path, read_only=request.param == "read-only") as db:
            yield db
        assert (file.folder == before) == db.read_only
        assert set(file.folder) == set(before)

    async def test_sessions_with_titles_and_prompts(self, db: Any, file: HistoricFile) -> None:
        for expected in file.expected_sessions:
            session = await db.get_session(expected["id"])
            session["model_config"] = json.loads(session["model_config"] or "null")
            assert {key: session[key] for key in expected} == expected

    async def test_messages(self, db: Any, file: HistoricFile) -> None:
        read = []
        for session_id, count in file.sidecar["messages_per_session"].items():
            rows = await db.get_messages(session_id)
            assert await db.message_count(session_id) == len(rows) == count
            read += [as_in_sidecar(row, position=i) for i, row in enumerate(rows, 1)]
        assert read == file.sidecar["messages"]
        assert await db.message_count() == file.sidecar["row_counts"]["messages"]

    async def test_lists(self, db: Any, file: HistoricFile) -> None:
        everything = await db.list_sessions_rich(
            include_children=True, include_archived=True, project_compression_tips=False
        )
        titles = {session["id"]: session["title"] for session in file.expected_sessions}
        assert {row["id"]: row["title"] for row in everything} == titles
        for options in ({}, {"order_by_last_active": True}):
            listed = await db.list_sessions_rich(**options)
            assert [row["id"] for row in listed] == ["cron_job42_20260301_060000", "s-cli-0002"]
            assert listed[1]["_lineage_root_id"] == "s-cli-0001"
            assert listed[1]["last_active"] == 1767225625.0

    async def test_searches(self, db: Any, file: HistoricFile) -> None:
        for search in file.sidecar["searches"]:
            assert await found(db, search["query"]) == search["expect"], search["query"]


async def test_writing_leaves_upstreams_objects_sound(file: HistoricFile) -> None:
    if driver.version() > (3, 40, 1):
        await file.rebuild()
    await file.check()
    before = await file.definitions()
    async with SessionDB(file.path) as db:
        await db.create_session("new", "cli", system_prompt="You look after the water.")
        for session_id in ("new", "s-cli-0002", "s-sub-0001"):
            await db.append_messages_batch(session_id, NEW_MESSAGES)
            for message in NEW_MESSAGES:
                await db.append_message(session_id, **message)
        await db.end_session("new", "completed")
    assert await file.definitions() == before
    await file.check()

    async with SessionDB(file.path) as db:
        assert await db.message_count("s-cli-0002") == 5 + 2 * len(NEW_MESSAGES)
        roles = ["assistant", "tool", "user"]
        writers = ["new", "s-cli-0002", "s-sub-0001"]
        assert await found(db, "cistern") == [[w, role] for w in writers for role in roles]
        # Substring search leaves delegates out; upstream's triggers index parts as escaped JSON.
        assert await found(db, "蓄水池的水位") == [[w, "assistant"] for w in writers[:2]]
        for search in file.sidecar["searches"]:
            assert await found(db, search["query"]) == search["expect"]


async def test_second_opening_changes_nothing(file: HistoricFile) -> None:
    async with SessionDB(file.path) as db:
        first = await use(db)
    stamped = file.folder
    async with SessionDB(file.path) as db:
        assert await use(db) == first
    assert file.folder == stamped
    async with SessionDB(file.path, read_only=True) as db:
        assert await use(db) == first
    assert stamped.items() <= file.folder.items()  # reading a WAL file, SQLite adds side files


async def test_an_empty_file_becomes_a_store(
    historic_stores: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = copied(historic_stores, "empty-file", tmp_path / "empty")
    with caplog.at_level(logging.WARNING, "hermes_orm"):
        async with SessionDB(file.path) as db:
            await db.create_session("s", "cli")
            await db.append_messages_batch("s", NEW_MESSAGES)
    assert sum("0 bytes" in record.message for record in caplog.records) == 1
    assert await Raw(str(file.path)).fetch("SELECT version FROM schema_version") == [(31,)]
    await file.check()


@pytest.mark.parametrize("name", AT_31[1:])
async def test_files_that_another_store_upgraded_are_usable(
    historic_stores: Path, tmp_path: Path, name: str
) -> None:
    file = copied(historic_stores, name, tmp_path / name)
    async with SessionDB(file.path, read_only=True) as db:
        unstamped = await use(db)
    async with SessionDB(file.path) as db:
        assert await use(db) == unstamped
        listed = {row["id"] for row in await db.list_sessions_rich()}
        assert listed == set(file.sidecar["observed_listing_of_existing_store"])
        for search in file.sidecar["searches"]:
            assert await found(db, search["query"]) == search["expect"], search["query"]
        await db.append_messages_batch("s-cli-0002", NEW_MESSAGES)
        assert await found(db, "cistern") == [
            ["s-cli-0002", role] for role in ("assistant", "tool", "user")
        ]
