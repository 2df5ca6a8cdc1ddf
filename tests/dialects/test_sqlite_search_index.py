"""The full-text tables of a SQLite file follow `messages`, and hold the searched text."""

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from hermes_orm import codec
from hermes_orm.dialects.sqlite import search_ddl
from hermes_orm.search.text import INDEXED_CHARACTERS, INDEXED_TOOL_CHARACTERS, search_columns
from tests.dialects.schemas import fresh_sqlite

INDEXES = ("messages_fts", "messages_fts_trigram")
MARKER = "\0json:"


def structured(content: Any) -> str:
    return MARKER + json.dumps(content)


def part(text: Any) -> dict[str, Any]:
    return {"type": "text", "text": text}


IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "QUJD" * 20_000}}

CONTENTS: dict[str, str | None] = {
    "nothing": None,
    "empty": "",
    "plain": "garden café 温室传感器",
    "NUL": "before\0after",
    "only NUL": "\0",
    "long": "word " * 20_000,
    "long with NUL": "word " * 20_000 + "\0 behind",
    "long CJK": "温室" * 40_000,
    "parts": structured([part("first"), IMAGE, part("second 温室")]),
    "no text part": structured([IMAGE]),
    "long part": structured([part("word " * 20_000), part("last")]),
    "part with NUL": structured([part("before\0after"), part("last")]),
    "part with lone surrogate": structured([part("a\ud800b")]),
    "odd parts": structured([None, 5, "text", [part("nested")], part(7), part(None), part("good")]),
    "object": structured(part("not a list")),
    "empty list": structured([]),
    "string": structured(MARKER + "[1, 2]"),
    "undecodable": MARKER + "[1, 2",
    "marker alone": MARKER,
    "not a number": MARKER + '[{"type": "text", "text": "nan", "n": NaN}]',
}
# SQLite cuts a text with U+0000 there, and takes undecodable JSON for no text.
SAME_TEXT = {
    name: content
    for name, content in CONTENTS.items()
    if name not in ("long with NUL", "undecodable", "marker alone", "not a number")
}
AS_STORED_ANYWHERE = {0: " ", 0xD800: "\ufffd"}
NAMES = (None, "terminal", "x" * 70_000, "nul\0name")
CALLS = (None, '[{"arguments": "中文参数"}]', '["' + "call " * 20_000 + '"]', "call\0behind")
ROLES = ("user", "assistant", "tool", "system")
SESSIONS = {
    "chat": ("cli", None),
    "broken": ("telegram", "{not json"),
    "list": ("api", "[1]"),
    "continued": ("cli", '{"_branched_from": "chat", "_delegate_from": null}'),
    "cron": ("cron", None),
    "subagent": ("subagent", None),
    "delegate": ("telegram", '{"_delegate_from": "chat"}'),
}
SUBSTRING_SESSIONS = {"chat", "broken", "list", "continued"}


@pytest.fixture
def driver() -> Iterator[Any]:
    with fresh_sqlite() as driver:
        driver.executemany(
            "INSERT INTO sessions (id, source, model_config, started_at) VALUES (?, ?, ?, 1)",
            [(name, *values) for name, values in SESSIONS.items()],
        )
        yield driver


def insert(
    driver: Any,
    content: str | None,
    tool_name: str | None = None,
    tool_calls: str | None = None,
    *,
    role: str = "user",
    session: str = "chat",
) -> int:
    cursor = driver.execute(
        "INSERT INTO messages (session_id, role, content, tool_name, tool_calls, timestamp) "
        "VALUES (?, ?, ?, ?, ?, 1)",
        (session, role, content, tool_name, tool_calls),
    )
    return int(cursor.lastrowid)


def check_indexes(driver: Any) -> None:
    """Compare each index with its content source, term by term and row by row."""
    for name in INDEXES:
        driver.execute(f"INSERT INTO {name} ({name}, rank) VALUES ('integrity-check', 1)")
        sources = driver.execute(f"SELECT id FROM {name}_src ORDER BY id").fetchall()
        assert indexed(driver, name) == [row[0] for row in sources]


def indexed(driver: Any, name: str) -> list[int]:
    return [row[0] for row in driver.execute(f"SELECT id FROM {name}_docsize ORDER BY id")]


def found(driver: Any, query: str, name: str = "messages_fts") -> list[int]:
    rows = driver.execute(f"SELECT rowid FROM {name} WHERE {name} MATCH ? ORDER BY rowid", (query,))
    return [row[0] for row in rows]


@pytest.mark.parametrize("seed", range(6))
def test_indexes_agree_with_transcripts_after_any_writes(driver: Any, seed: int) -> None:
    chance = random.Random(seed)
    values = {
        "content": list(CONTENTS.values()),
        "tool_name": NAMES,
        "tool_calls": CALLS,
        "role": ROLES,
        "active": (0, 1),
    }
    ids: list[int] = []
    for step in range(40):
        action = chance.random()
        if action < 0.5 or not ids:
            texts = (
                chance.choice(list(CONTENTS.values())),
                chance.choice(NAMES),
                chance.choice(CALLS),
            )
            session = chance.choice(list(SESSIONS))
            ids.append(insert(driver, *texts, role=chance.choice(ROLES), session=session))
        elif action < 0.85:
            columns = chance.sample(list(values), chance.randint(1, 3))
            driver.execute(
                f"UPDATE messages SET {', '.join(f'{column} = ?' for column in columns)} "
                "WHERE id IN (?, ?)",
                (*(chance.choice(values[column]) for column in columns), *chance.choices(ids, k=2)),
            )
        else:
            driver.execute(
                "DELETE FROM messages WHERE id = ?", (ids.pop(chance.randrange(len(ids))),)
            )
        if step % 5 == 4:
            check_indexes(driver)


@pytest.mark.parametrize("role", ["assistant", "tool"])
@pytest.mark.parametrize("content", SAME_TEXT.values(), ids=SAME_TEXT)
def test_index_holds_the_text_that_python_searches(
    driver: Any, content: str | None, role: str
) -> None:
    insert(driver, content, "terminal", CALLS[1], role=role)
    assert searched_by_sqlite(driver) == searched_by_python(driver)


@pytest.mark.parametrize("content", ["plain", "long", "parts", "long part"])
@pytest.mark.parametrize("tool_name", NAMES[:3])
@pytest.mark.parametrize("tool_calls", CALLS[:3])
def test_columns_share_what_python_searches(
    driver: Any, content: str, tool_name: str | None, tool_calls: str | None
) -> None:
    for role in ("assistant", "tool"):
        insert(driver, CONTENTS[content], tool_name, tool_calls, role=role)
    assert searched_by_sqlite(driver) == searched_by_python(driver)


def searched_by_sqlite(driver: Any) -> list[tuple[str, ...]]:
    driver.text_factory = lambda raw: raw.decode(errors="surrogatepass")
    rows = driver.execute("SELECT content, tool_name, tool_calls FROM messages_fts_src ORDER BY id")
    return [tuple((text or "").translate(AS_STORED_ANYWHERE) for text in row) for row in rows]


def searched_by_python(driver: Any) -> list[tuple[str, ...]]:
    rows = driver.execute("SELECT content, tool_name, tool_calls, role FROM messages ORDER BY id")
    return [search_columns(codec.decode_content(row[0]), *row[1:]) for row in rows]


def test_tool_rows_are_indexed_by_their_beginning(driver: Any) -> None:
    inside = "x" * (INDEXED_TOOL_CHARACTERS - 6) + " inner" + " outer"
    row = insert(driver, inside, role="tool")
    assert found(driver, "inner") == [row]
    assert found(driver, "outer") == []
    driver.execute("UPDATE messages SET role = 'user' WHERE id = ?", (row,))
    assert found(driver, "outer") == [row]
    assert found(driver, "outer", "messages_fts_trigram") == [row]
    driver.execute("UPDATE messages SET role = 'tool' WHERE id = ?", (row,))
    assert found(driver, "outer") == []
    assert found(driver, "outer", "messages_fts_trigram") == []
    check_indexes(driver)


def test_a_message_has_one_share_of_the_index(driver: Any) -> None:
    content = "x" * (INDEXED_CHARACTERS - 10)
    row = insert(driver, content, "name", "calls1 calls2", role="assistant")
    assert found(driver, "name") == [row]
    assert found(driver, "calls1") == [row]
    assert found(driver, "calls2") == []


def test_substring_index_covers_conversations_only(driver: Any) -> None:
    rows = {name: insert(driver, "温室传感器", session=name) for name in SESSIONS}
    insert(driver, "温室传感器", role="tool")
    assert found(driver, "室传感", "messages_fts_trigram") == [
        rows[name] for name in SESSIONS if name in SUBSTRING_SESSIONS
    ]
    assert len(found(driver, "温室传感器")) == len(SESSIONS) + 1


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE sessions SET source = 'cron' WHERE id = 'chat'",
        """UPDATE sessions SET model_config = '{"_delegate_from": "x"}' WHERE id = 'chat'""",
        "DELETE FROM sessions WHERE id = 'chat'",
    ],
)
def test_messages_leave_the_index_when_their_session_changed_before(
    driver: Any, change: str
) -> None:
    kept = insert(driver, "garden", session="list")
    updated, deleted = insert(driver, "garden"), insert(driver, "garden")
    driver.execute(change)
    driver.execute("UPDATE messages SET content = 'other' WHERE id = ?", (updated,))
    driver.execute("DELETE FROM messages WHERE id = ?", (deleted,))
    assert indexed(driver, "messages_fts_trigram") == [kept]
    check_indexes(driver)


def test_flags_cost_no_index_work(driver: Any) -> None:
    insert(driver, "garden")
    statements: list[str] = []
    driver.set_trace_callback(statements.append)
    driver.execute("UPDATE messages SET active = 0, compacted = 1, observed = 1")
    driver.execute("UPDATE messages SET content = 'garden', role = 'user'")
    driver.set_trace_callback(None)
    assert not [statement for statement in statements if "_fts" in statement]


def test_rebuilding_restores_an_index(driver: Any) -> None:
    for content in CONTENTS.values():
        insert(driver, content)
    for name in INDEXES:
        driver.execute(f"INSERT INTO {name} ({name}) VALUES ('delete-all')")
        driver.execute(f"INSERT INTO {name} ({name}) VALUES ('rebuild')")
    check_indexes(driver)


def test_rows_that_a_rebuild_has_not_reached_stay_out_until_then(driver: Any) -> None:
    rows = [insert(driver, f"garden{number}") for number in range(6)]
    for name in INDEXES:
        driver.execute(f"INSERT INTO {name} ({name}) VALUES ('delete-all')")
    fill(driver, rows[0], rows[1])
    for key, value in (("high_water", rows[-1]), ("progress", rows[1])):
        driver.execute("INSERT INTO state_meta VALUES (?, ?)", (f"fts_rebuild_{key}", str(value)))
    driver.execute("UPDATE messages SET content = 'changed' WHERE id IN (?, ?)", (rows[0], rows[2]))
    driver.execute("DELETE FROM messages WHERE id IN (?, ?)", (rows[1], rows[3]))
    new = insert(driver, "changed")
    for name in INDEXES:
        assert indexed(driver, name) == [rows[0], new]
    fill(driver, rows[2], rows[-1])
    driver.execute("DELETE FROM state_meta WHERE key LIKE 'fts_rebuild%'")
    check_indexes(driver)
    assert found(driver, "changed") == [rows[0], rows[2], new]


def fill(driver: Any, first: int, last: int) -> None:
    """Index a range of ids, as a step of a rebuild does."""
    for index in (search_ddl.WORDS, search_ddl.SUBSTRINGS):
        columns = ", ".join(index.columns)
        driver.execute(
            f"INSERT INTO {index.name} (rowid, {columns}) SELECT id, {columns} FROM {index.view} "
            "WHERE id BETWEEN ? AND ?",
            (first, last),
        )


def test_search_text_serves_predicates(driver: Any) -> None:
    row = insert(driver, CONTENTS["parts"])
    searched = search_ddl.search_text_sql("m")
    query = f"SELECT m.id FROM messages AS m WHERE {searched} LIKE '%second 温室%'"
    assert driver.execute(query).fetchall() == [(row,)]
