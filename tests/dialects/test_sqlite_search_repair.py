"""Search indexes of a file that are missing, foreign or damaged: writes succeed, hits are right."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hermes_orm import SessionDB
from hermes_orm.dialects.sqlite import cjk, search_ddl, search_upkeep, writer
from tests.contract.finding import found, found_set
from tests.contract.index_states import Index
from tests.raw import Raw

Open = Callable[..., SessionDB]
NAMES = ("messages_fts", "messages_fts_trigram")
TEXTS = ("red garden", "green garden 温室传感器", "blue house")


@pytest.fixture
def location(make_location: Callable[..., str]) -> str:
    return make_location("sqlite")


@pytest.fixture
def index(raw: Raw) -> Index:
    return Index(raw)


@pytest.fixture
async def told(open_store: Open) -> None:
    """A closed store of three messages."""
    db = open_store()
    await db.create_session("s", "cli")
    for text in TEXTS:
        await db.append_message("s", "user", text)
    await db.close()


async def drop_triggers(raw: Raw) -> None:
    for name in NAMES:
        for event in ("insert", "delete", "update"):
            await raw.execute(f"DROP TRIGGER {name}_{event}")


async def append_raw(raw: Raw, text: str) -> None:
    await raw.execute(
        "INSERT INTO messages (session_id, role, content, timestamp) VALUES ('s', 'user', ?, 9)",
        text,
    )


async def metas(raw: Raw) -> set[str]:
    return {row[0] for row in await raw.fetch("SELECT key FROM state_meta WHERE key GLOB 'fts_*'")}


async def test_triggers_that_another_tool_dropped_come_back(
    told: None, open_store: Open, raw: Raw, index: Index
) -> None:
    await drop_triggers(raw)  # field report E4
    await append_raw(raw, "yellow garden")
    db = open_store()
    assert await found_set(db, "garden") == [1, 2, 4]
    await db.append_message("s", "user", "white garden")
    await index.check(5)


@pytest.mark.parametrize("mark", ["fts_stale", "nothing"])
async def test_a_stale_index_is_built_anew_at_opening(
    told: None, open_store: Open, raw: Raw, index: Index, mark: str
) -> None:
    await raw.execute("DELETE FROM messages_fts_data")
    await raw.execute("INSERT INTO state_meta VALUES (?, '1')", mark)
    db = open_store()
    assert await found_set(db, "garden") == [1, 2]
    if mark == "fts_stale":
        await index.check(3)
        assert await metas(raw) == set()


async def test_an_index_of_another_shape_is_built_anew(
    told: None, open_store: Open, raw: Raw, index: Index
) -> None:
    await raw.execute("DROP TABLE messages_fts")  # field report E7
    await raw.execute("CREATE VIRTUAL TABLE messages_fts USING fts5(content, tool_name)")
    db = open_store()
    await db.append_message("s", "user", "white garden")
    assert await found_set(db, "garden") == [1, 2, 4]
    await index.check(4)


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE {}_data SET block = x'ff' WHERE id = 10",
        "UPDATE {}_data SET block = x'ff'",
        "DELETE FROM {}_data",
        "DELETE FROM {}_config",
        "DROP TABLE {}_idx",
        "DROP TABLE {}_docsize",
    ],
)
async def test_a_message_is_stored_whatever_is_damaged_in_an_index(
    told: None, open_store: Open, raw: Raw, index: Index, damage: str
) -> None:
    for name in NAMES:  # field reports E2, E3
        await raw.execute(damage.format(name))
    db = open_store()
    for n in range(3):
        await db.append_message("s", "user", f"white garden {n}")
    assert await found_set(db, "garden") == [1, 2, 4, 5, 6]
    assert await found_set(db, "arde") == [1, 2, 4, 5, 6]
    assert await db.rebuild_fts() == 2
    await index.check(6)
    assert await metas(raw) == set()


async def test_writes_go_on_without_an_index_that_cannot_be_repaired(
    told: None,
    open_store: Open,
    raw: Raw,
    index: Index,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    db = open_store()
    assert await found_set(db, "garden") == [1, 2]
    for n in range(2):
        for name in NAMES:
            await raw.execute(f"UPDATE {name}_data SET block = x'ff'")
        await db.append_message("s", "user", f"white garden {n}")
        assert await metas(raw) == ({"fts_stale"} if n else set())
    await db.append_message("s", "user", "pink garden")
    assert await found(db, "garden NOT white", sort="oldest") == [1, 2, 6]
    hit = (await db.search_messages("pink", fields=["snippet"]))[0]
    assert dict(hit) == {"snippet": ">>>pink<<< garden"}
    assert not await db.fts_optimize_available()
    assert await db.optimize_fts() >= 0
    assert await db.rebuild_fts() == 2
    assert await metas(raw) == set()
    await index.check(6)


async def test_another_process_that_detached_an_index_is_noticed(
    told: None, open_store: Open, raw: Raw, index: Index
) -> None:
    db = open_store()
    assert await found(db, "house") == [3]
    await drop_triggers(raw)
    await raw.execute("INSERT INTO state_meta VALUES ('fts_stale', '1')")
    await append_raw(raw, "white house")
    assert await found_set(db, "house") == [3, 4]
    result = await db.optimize_fts_storage(vacuum=False)
    assert result == {"ok": True, "vacuumed": None}
    await index.check(4)
    assert await metas(raw) == {"fts_storage_version"}


async def test_without_full_text_search_everything_else_works(
    told: None, open_store: Open, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_upkeep, "has_fts5", lambda connection: False)
    db = open_store()
    await db.append_message("s", "user", "white garden")
    names = [row[0] for row in await raw.fetch("SELECT name FROM sqlite_master")]
    assert [name for name in names if name.startswith("messages_fts") and "_insert" in name] == []
    assert await db.optimize_fts() == await db.rebuild_fts() == 0
    assert not await db.fts_optimize_available()
    assert not await db.fts_rebuild_step()
    assert await db.optimize_fts_storage() == {"ok": False, "reason": "fts5_unavailable"}
    await db.close()
    monkeypatch.undo()
    again = open_store()
    assert await found_set(again, "garden") == [1, 2, 4]


async def test_a_missing_tokenizer_costs_one_index_and_no_rebuilds(
    told: None,
    open_store: Open,
    raw: Raw,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(search_upkeep, "can_create", lambda connection, index: False)
    for name in ("insert", "delete", "update"):
        await raw.execute(f"DROP TRIGGER messages_fts_trigram_{name}")
    await raw.execute("DROP TABLE messages_fts_trigram")
    monkeypatch.setattr(search_upkeep, "restore_search", None)  # S16: no rebuild at each opening
    db = open_store()
    assert await found(db, "传感器") == [2]
    assert await db.optimize_fts() == 1
    names = await raw.fetch("SELECT name FROM sqlite_master")
    assert (search_ddl.SUBSTRINGS.name,) not in names


async def make_legacy(raw: Raw) -> None:
    """Give a file the indexes of versions before 23, which hold a copy of all texts."""
    await drop_triggers(raw)
    joined = " || ' ' || ".join(
        f"coalesce({{0}}.{c}, '')" for c in ("content", "tool_name", "tool_calls")
    )
    for name, option in zip(NAMES, ("", ", tokenize='trigram'"), strict=True):
        await raw.execute(f"DROP VIEW {name}_src")
        await raw.execute(f"DROP TABLE {name}")
        await raw.execute(f"CREATE VIRTUAL TABLE {name} USING fts5(content{option})")
        add = f"INSERT INTO {name} (rowid, content) "
        new = f"{add} VALUES (NEW.id, {joined.format('NEW')});"
        old = f"DELETE FROM {name} WHERE rowid = OLD.id;"
        for event, body in (("insert", new), ("delete", old), ("update", old + new)):
            await raw.execute(
                f"CREATE TRIGGER {name}_{event} AFTER {event} ON messages BEGIN {body} END"
            )
        await raw.execute(f"{add} SELECT id, {joined.format('messages')} FROM messages")


@pytest.mark.parametrize("trash", [False, True])
async def test_a_legacy_layout_is_used_as_found_until_it_is_converted(
    told: None, open_store: Open, raw: Raw, index: Index, trash: bool
) -> None:
    await make_legacy(raw)  # search 7.2
    db = open_store()
    calls = [{"id": "1", "function": {"name": "plough", "arguments": "{}"}}]
    await db.append_message("s", "assistant", "white garden", tool_calls=calls)
    assert await found_set(db, "garden") == [1, 2, 4]
    assert await found_set(db, "plough") == [4]
    assert await found_set(db, "lough") == [], "S21: no substrings of tool calls"
    assert await found_set(db, "传感器") == [2]
    assert await metas(raw) == {"fts_optimize_available"}
    assert await db.fts_optimize_available()
    if trash:  # a crash in the middle of another program's conversion
        await raw.execute("CREATE TABLE fts_v22_trash_messages_fts_data (id INTEGER PRIMARY KEY)")
        await raw.execute("INSERT INTO fts_v22_trash_messages_fts_data VALUES (7)")
    phases = []
    result = await db.optimize_fts_storage(progress_cb=lambda event: phases.append(event["phase"]))
    assert result == {"ok": True, "vacuumed": True}
    assert phases[-2:] == ["vacuum", "done"]
    assert await metas(raw) == {"fts_storage_version"}
    assert await raw.fetch("SELECT name FROM sqlite_master WHERE name GLOB 'fts_v22*'") == []
    assert not await db.fts_optimize_available()
    await index.check(4)
    assert await found_set(db, "garden") == [1, 2, 4]


async def test_a_rebuild_takes_in_what_the_index_missed(
    told: None, open_store: Open, raw: Raw, index: Index
) -> None:
    db = open_store()
    assert await found(db, "house") == [3]
    await drop_triggers(raw)  # field report E6
    await append_raw(raw, "white house")
    assert await db.rebuild_fts() == 2
    assert await found_set(db, "house") == [3, 4]
    await db.append_message("s", "user", "pink house")
    await index.check(5)


async def test_an_index_is_not_larger_than_the_texts_of_a_conversation(
    told: None, open_store: Open, raw: Raw
) -> None:
    db = open_store()  # field report E1
    words = [f"{n:x}{n * 7919 % 99991:x}" for n in range(4000)]
    rows = []
    for n in range(150):
        text = " ".join(words[(n * 31 + k) % 4000] for k in range(100))
        arguments = '{"path": "' + "a/" * 1000 + '"}'
        calls = [{"id": str(n), "function": {"name": "read", "arguments": arguments}}]
        rows.append({"role": "assistant", "content": text * 2, "tool_calls": calls})
        rows.append({"role": "tool", "content": text * 12, "tool_name": "read"})
    await db.append_messages_batch("s", rows)
    await db.optimize_fts()
    ((texts,),) = await raw.fetch(
        "SELECT sum(length(content) + coalesce(length(tool_calls), 0)) FROM messages"
    )
    ((index_size,),) = await raw.fetch(
        "SELECT (SELECT sum(length(block)) FROM messages_fts_data) "
        "+ (SELECT sum(length(block)) FROM messages_fts_trigram_data)"
    )
    assert index_size < texts


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A tokenizer in place of the CJK extension, which finds three characters or more."""
    options = search_ddl.CJK.options
    monkeypatch.setenv("HERMES_SEARCH_SLOW_MS", "0")
    monkeypatch.setenv("HERMES_FTS5_CJK_SO", str(tmp_path / "extension.so"))
    monkeypatch.setattr(cjk, "load", lambda driver, path: True)
    object.__setattr__(search_ddl.CJK, "options", ", tokenize='trigram'")
    yield
    object.__setattr__(search_ddl.CJK, "options", options)


async def test_the_cjk_index_is_filled_by_steps_and_then_asked(
    stand_in: None,
    told: None,
    open_store: Open,
    raw: Raw,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "hermes_orm.search")
    extension = tmp_path / "extension.so"
    extension.touch()

    async def route(db: SessionDB, query: str) -> str:
        caplog.clear()
        assert await found(db, query) == [2]
        return caplog.messages[-1].split()[1]

    db = open_store()
    assert await db.fts_cjk_rebuild_status() is not None
    assert await db.fts_optimize_available()
    assert await route(db, "温室传感器") == "route=trigram"
    assert not await db.fts_cjk_rebuild_step()
    assert await db.fts_cjk_rebuild_status() is None
    assert await route(db, "温室传感器") == "route=fts_cjk"
    assert await route(db, "garden 温室传") == "route=trigram", "not of CJK letters only"
    assert await db.optimize_fts() == await db.rebuild_fts() == 3
    await db.close()
    extension.unlink()
    without = open_store()
    assert await route(without, "温室传感器") == "route=trigram"
    await without.append_message("s", "user", "no trigger stands in the way")
    assert await metas(raw) == {"fts_cjk_stale"}
    await without.close()
    extension.touch()
    again = open_store()
    await again.get_meta("any")
    assert await again.fts_optimize_available()
    assert await route(again, "温室传感器") == "route=trigram"
    assert (await again.optimize_fts_storage(vacuum=False))["ok"]
    assert await route(again, "温室传感器") == "route=fts_cjk"


async def test_an_extension_that_cannot_be_loaded_is_done_without(
    told: None, open_store: Open, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "extension.so").write_text("no library")
    monkeypatch.setenv("HERMES_FTS5_CJK_SO", str(tmp_path / "extension.so"))
    db = open_store()
    assert await found(db, "温室") == [2]
    assert not await db.fts_cjk_rebuild_step()


async def test_parts_of_an_index_are_merged_after_many_writes(
    told: None, open_store: Open, raw: Raw, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "MERGE_EVERY", 10)
    db = open_store()
    for n in range(40):
        await db.append_message("s", "user", f"needle {n}")
    await db.message_count()
    rows = await raw.fetch("SELECT v FROM messages_fts_config WHERE k = 'usermerge'")
    assert rows == [(2,)]
    ((segments,),) = await raw.fetch("SELECT count(DISTINCT segid) FROM messages_fts_idx")
    assert segments < 12
    await raw.execute("UPDATE messages_fts_data SET block = x'ff'")
    for n in range(30):
        await db.append_message("s", "user", f"needle {n}")
    await index.check(73)
