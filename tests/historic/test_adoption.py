"""Files of every earlier release are brought to the newest schema by the first writable opening."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from hermes_orm import SchemaError, SessionDB, migrations
from hermes_orm.dialects.adoption import AdoptionReport
from tests.historic.shape import differences, shape
from tests.historic.stores import HistoricFile, as_in_sidecar, copied
from tests.historic.test_version_31 import AT_31, NEW_MESSAGES, found, use
from tests.raw import Raw

VERSIONS = [f"state-v{number:02d}" for number in range(1, 31)]
VARIANTS = ["state-v07-alt", "state-v10-inline", "state-v14-early", "state-v20-early"]
UPGRADED = ["state-v25-async", "upgraded-v06-to-v25", "upgraded-v22-to-v25"]
BROKEN = [
    "broken-v03-duplicate-titles",
    "broken-v14-active-null",
    "broken-v15-bad-model-config",
    "broken-v19-routing-key",
    "broken-v22-usage-key",
    "broken-v25-fts-interrupted",
    "broken-v25-missing-column",
    "broken-v25-missing-fts-trigger",
    "broken-v25-no-version-row",
    "broken-v25-orphan-rows",
]
REFUSED = ["broken-future-v99", "foreign-not-hermes"]
OLD = [*VERSIONS, *VARIANTS, *UPGRADED, *BROKEN]

RENAMED = {
    "s-tg-0001": "Garden irrigation plan #3",
    "cron_job42_20260301_060000": "Garden irrigation plan #4",
}
"""Titles of the sessions that shared one, in a file from before the unique index."""


@pytest.fixture
def file(request: pytest.FixtureRequest, historic_stores: Path, tmp_path: Path) -> HistoricFile:
    return copied(historic_stores, request.param, tmp_path / "store")


async def test_every_file_of_the_folder_is_covered(historic_stores: Path) -> None:
    names = {path.stem for path in historic_stores.glob("*.db")}
    assert names == {*OLD, *AT_31, *REFUSED, "empty-file"}


@pytest.mark.parametrize("file", OLD, indirect=True)
async def test_first_opening_adopts_a_file(file: HistoricFile, sqlite_template: Path) -> None:
    async with SessionDB(file.path) as db:
        await matches_sidecar(db, file)
        first = await use(db)
    await rows_match(file)
    assert differences(await shape(file.path), await shape(sqlite_template)) == {}
    await is_sound(file)
    await check_backup(file)

    adopted = file.folder
    async with SessionDB(file.path) as db:
        assert await use(db) == first
    assert file.folder == adopted
    async with SessionDB(file.path) as db:
        await work(db)
    await is_sound(file)


async def matches_sidecar(db: Any, file: HistoricFile) -> None:
    """Compare what the store returns with what the file held."""
    delegates = file.sidecar["expect_after_upgrade"]["delegate_from"]
    for expected in file.expected_sessions:
        if expected["id"] in delegates:
            expected["model_config"]["_delegate_from"] = delegates[expected["id"]]
        if "duplicate-titles" in file.sidecar["fixture"]:
            expected["title"] = RENAMED.get(expected["id"], expected["title"])
        session = await db.get_session(expected["id"])
        session["model_config"] = decoded(session["model_config"])
        assert {key: session[key] for key in expected} == expected
    read = []
    for session_id in file.sidecar["messages_per_session"]:
        rows = await db.get_messages(session_id)
        read += [as_in_sidecar(row, position=i) for i, row in enumerate(rows, 1)]
    held = [{k: v for k, v in row.items() if k != "active"} for row in file.sidecar["messages"]]
    assert sorted(read, key=lambda row: row["id"]) == held
    for root, tip in file.sidecar["expect_after_upgrade"]["compression_tip"].items():
        assert await db.get_compression_tip(root) == tip
    for search in file.sidecar["searches"]:
        assert await found(db, search["query"]) == search["expect"], search["query"]


def decoded(text: str | None) -> Any:
    """Return a JSON value; text that is none as it is."""
    try:
        return json.loads(text or "null")
    except ValueError:
        return text


async def rows_match(file: HistoricFile) -> None:
    """Compare the tables that a store shows only in part."""
    raw, sidecar = Raw(str(file.path)), file.sidecar
    expected = sidecar["expect_after_upgrade"]
    assert await raw.fetch("SELECT version FROM schema_version") == [(31,)]
    prompts = await raw.fetch("SELECT hash, prompt FROM system_prompts")
    assert {tuple(row) for row in prompts} == set(expected["system_prompts"].items())
    for table in ("sessions", "messages", "gateway_routing"):
        count = await raw.fetch(f"SELECT count(*) FROM {table}")
        assert count == [(sidecar["row_counts"].get(table, 0),)]
    usage = expected.get("usage_rows_seeded_by_0020") or sidecar["session_model_usage"]
    columns = list(usage[0])
    rows = await raw.fetch(f"SELECT {', '.join(columns)} FROM session_model_usage")
    assert {tuple(row) for row in rows} == {tuple(row.values()) for row in usage}
    uids = await raw.fetch(
        "SELECT count(DISTINCT message_uid), min(length(message_uid)) FROM messages"
    )
    assert uids == [(sidecar["row_counts"]["messages"], 32)]
    keys = {row[0] for row in await raw.fetch("SELECT key FROM state_meta")}
    assert "fts_rebuild_high_water" not in keys
    assert await raw.fetch("SELECT value FROM state_meta WHERE key = 'fts_storage_version'") == [
        ("3",)
    ]


async def is_sound(file: HistoricFile) -> None:
    """Check what SQLite stores twice; what referred to nothing before still does."""
    raw = Raw(str(file.path))
    broken = await raw.fetch("PRAGMA foreign_key_check")
    assert len(broken) == file.sidecar["file"]["foreign_key_violations"]
    assert await raw.fetch("PRAGMA integrity_check") == [("ok",)]
    for index in ("messages_fts", "messages_fts_trigram"):
        await raw.execute(f"INSERT INTO {index}({index}, rank) VALUES ('integrity-check', 1)")


async def check_backup(file: HistoricFile) -> None:
    """The copy beside the file is the file as it was, for its owner only."""
    (backup,) = file.path.parent.glob("*.bak-v*")
    version = (file.sidecar["schema_version_rows"] or [25])[0]
    assert backup.name.startswith(f"{file.path.name}.bak-v{version:02d}-2")
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600
    raw = Raw(str(backup))
    versions = [row[0] for row in await raw.fetch("SELECT version FROM schema_version")]
    assert versions == file.sidecar["schema_version_rows"]
    (count,) = await raw.fetch("SELECT count(*) FROM messages")
    assert count == (file.sidecar["row_counts"]["messages"],)
    assert {path.name for path in file.path.parent.iterdir()} == {file.path.name, backup.name}


async def work(db: Any) -> None:
    """Use an adopted store as an agent does."""
    await db.create_session("new", "cli", system_prompt="You look after the water.")
    for session_id in ("new", "s-cli-0002", "s-sub-0001"):
        await db.append_messages_batch(session_id, NEW_MESSAGES)
        for message in NEW_MESSAGES:
            await db.append_message(session_id, **message)
    writers = ["new", "s-cli-0002", "s-sub-0001"]
    roles = ["assistant", "tool", "user"]
    assert await found(db, "cistern") == [[w, role] for w in writers for role in roles]
    compacted = [{"role": "user", "content": "Summary: the cistern."}]
    await db.archive_and_compact("s-cli-0002", compacted)
    assert [row["content"] for row in await db.get_messages("s-cli-0002")] == [
        "Summary: the cistern."
    ]
    await db.set_session_title("new", "Water")
    await db.end_session("new", "completed")
    listed = [row["id"] for row in await db.list_sessions_rich()]
    assert {"new", "s-cli-0002"} <= set(listed)
    exported = {session["id"]: session for session in await db.export_all()}
    assert len(exported["new"]["messages"]) == 2 * len(NEW_MESSAGES)
    assert exported["s-cli-0002"]["messages"][-1]["content"] == "Summary: the cistern."


async def test_repairs_of_odd_files(historic_stores: Path, tmp_path: Path) -> None:
    async def adopted(name: str) -> tuple[AdoptionReport, Raw]:
        file = copied(historic_stores, name, tmp_path / name)
        return await migrations.adopt(str(file.path)), Raw(str(file.path))

    report, raw = await adopted("broken-v25-missing-column")
    assert (report.version, report.shape, report.start) == (25, 22, "0025")
    assert {"sessions.last_activity_at", "messages.display_metadata"} <= set(report.holes)
    report, raw = await adopted("broken-v25-no-version-row")
    assert (report.version, report.shape, report.start) == (None, 25, "0025")
    report, raw = await adopted("broken-v25-orphan-rows")
    assert report.violations == ("messages -> sessions: 1", "sessions -> sessions: 1")
    assert await raw.fetch("SELECT content FROM messages WHERE session_id = 'gone-1'") == [
        ("A message without its session.",)
    ]
    report, raw = await adopted("broken-v15-bad-model-config")
    assert report.undecodable == {"sessions.model_config": 1}
    assert report.repaired_rows["delegate markers written"] == 1
    report, raw = await adopted("broken-v14-active-null")
    assert report.repaired_rows["active flags set"] == 23
    report, raw = await adopted("broken-v03-duplicate-titles")
    assert report.repaired_rows["duplicate titles renamed"] == 2
    report, raw = await adopted("broken-v19-routing-key")
    assert [row[0] for row in await raw.fetch("SELECT scope FROM gateway_routing")] == [""]
    report, raw = await adopted("broken-v25-missing-fts-trigger")
    async with SessionDB(report.backup.partition(".bak")[0] if report.backup else "") as db:
        assert await found(db, "lighthouse") == [["s-cli-0002", "user"]]
    report, raw = await adopted("state-v06")
    assert report.repaired_rows["prompts moved"] == 5
    assert report.repaired_rows["usage rows seeded or merged"] == 4
    assert report.repaired_rows["message ids minted"] == 23
    assert report.search == "rebuilt"


@pytest.mark.parametrize("read_only", [False, True], ids=["for writing", "read-only"])
async def test_unusable_files_are_refused_and_stay_as_they_are(
    historic_stores: Path, tmp_path: Path, read_only: bool
) -> None:
    for name in [*REFUSED, *(OLD if read_only else [])]:
        file = copied(historic_stores, name, tmp_path / name)
        before = file.folder
        async with SessionDB(file.path, read_only=read_only) as db:
            with pytest.raises(SchemaError, match="nothing was changed; "):
                await db.get_session("s-cli-0001")
        assert file.folder == before, name
        if not read_only:
            for change in (migrations.adopt, migrations.upgrade):
                with pytest.raises(SchemaError, match="nothing was changed"):
                    await change(str(file.path))
                assert file.folder == before, name


async def test_adoption_that_is_switched_off_names_the_command(
    historic_stores: Path, tmp_path: Path, hermes_home: Path
) -> None:
    hermes_home.mkdir()
    (hermes_home / "config.yaml").write_text("database: {sqlite: {auto_migrate: false}}")
    file = copied(historic_stores, "state-v16", tmp_path / "store")
    before = file.folder
    async with SessionDB(file.path) as db:
        with pytest.raises(SchemaError, match=rf"version 16.*hermes-orm db upgrade {file.path}"):
            await db.get_session("s-cli-0001")
    assert file.folder == before
