"""Reading, ending and reopening sessions; conversation generations."""

import asyncio
import json
from typing import Any

import pytest

from hermes_orm.rows import SessionRow

RESETS = [
    "session_reset",
    "session_switch",
    "idle",
    "daily",
    "suspended",
    "resume_pending_expired",
]


async def end_of(db: Any, session_id: str) -> tuple[Any, Any]:
    row = await db.get_session(session_id)
    return row["ended_at"], row["end_reason"]


async def generations(raw: Any) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = await raw.fetch(
        "SELECT source, session_key, generation FROM conversation_generations ORDER BY 1, 2"
    )
    return rows


async def test_session_has_exactly_55_keys(db: Any) -> None:
    await db.create_session("s", "cli", system_prompt="P")
    row = await db.get_session("s")
    assert len(row) == 55 and row.keys() == SessionRow.__annotations__.keys()
    assert type(row) is dict
    assert row["system_prompt"] == "P" and len(row["system_prompt_hash"]) == 64


@pytest.mark.parametrize("unknown", [None, "nope", "a\0", "a\ud800", "x" * 60_000, ""])
async def test_unknown_session_is_none(db: Any, unknown: Any) -> None:
    await db.create_session("a", "cli")
    assert await db.get_session(unknown) is None


async def test_inline_prompt_of_an_old_file_is_read(db: Any, raw: Any) -> None:
    await db.create_session("s", "cli")
    await raw.execute("UPDATE sessions SET system_prompt = 'old'")
    assert (await db.get_session("s"))["system_prompt"] == "old"
    await db.create_session("s", "cli", model="m")
    assert (await db.get_session("s"))["system_prompt"] == "old"
    await db.create_session("s", "cli", system_prompt="new")
    assert (await db.get_session("s"))["system_prompt"] == "new"
    assert await raw.fetch("SELECT system_prompt FROM sessions") == [(None,)]


async def test_first_end_reason_wins(db: Any, clock: Any) -> None:
    await db.create_session("s", "cli")
    ended = clock()
    await db.end_session("s", "compression")
    clock.advance(5)
    await db.end_session("s", "agent_close")
    await db.end_session("s", "idle")
    assert await end_of(db, "s") == (ended, "compression")


async def test_end_without_a_reason_blocks_later_reasons(db: Any, clock: Any) -> None:
    await db.create_session("s", "cli")
    await db.end_session("s", None)
    await db.end_session("s", "done")
    assert await end_of(db, "s") == (clock(), None)


async def test_unknown_sessions_are_no_errors(db: Any) -> None:
    for unknown in ("nope", None, "", "a\0", "a\ud800"):
        assert await db.end_session(unknown, "idle") is None
        assert await db.reopen_session(unknown) is None
    assert await db.session_count() == 0


async def test_end_reason_that_cannot_be_stored_is_replaced(db: Any) -> None:
    await db.create_session("s", "cli")
    await db.end_session("s", "a\0b\ud800")
    assert (await end_of(db, "s"))[1] == "a\ufffdb\ufffd"


async def test_two_stores_end_one_session(db: Any, open_store: Any, raw: Any) -> None:
    await db.create_session("s", "telegram", session_key="k")
    stores = [db, open_store()]
    await asyncio.gather(*(stores[n % 2].end_session("s", RESETS[n]) for n in range(6)))
    assert (await end_of(db, "s"))[1] in RESETS
    assert await generations(raw) == [("telegram", "k", 1)]


# Reopening


async def test_reopening_marks_children_that_are_resets_by_the_end_reason_only(db: Any) -> None:
    await db.create_session("p", "cli", session_key="k")
    await db.end_session("p", "session_switch")
    children = {
        "plain": None,
        "null": {"a": "ü", "_reset_from": None},
        "marked": {"_reset_from": "x"},
        "delegate": {"_delegate_from": "p"},
    }
    for child, config in children.items():
        await db.create_session(
            child, "cli", parent_session_id="p", session_key="k", model_config=config
        )
    await db.create_session("other", "cli", parent_session_id="p", session_key="z")
    await db.reopen_session("p")
    assert await end_of(db, "p") == (None, None)
    configs = {child: (await db.get_session(child))["model_config"] for child in children}
    assert configs == {
        "plain": '{"_reset_from":"p"}',
        "null": '{"a":"\\u00fc","_reset_from":"p"}',
        "marked": '{"_reset_from": "x"}',
        "delegate": '{"_delegate_from":"p","_reset_from":"p"}',
    }
    assert (await db.get_session("other"))["model_config"] is None


async def test_reopening_after_another_end_marks_nothing(db: Any) -> None:
    await db.create_session("p", "cli", session_key="k")
    await db.end_session("p", "compression")
    await db.create_session("c", "cli", parent_session_id="p", session_key="k")
    await db.reopen_session("p")
    await db.reopen_session("p")
    assert await end_of(db, "p") == (None, None)
    assert (await db.get_session("c"))["model_config"] is None


@pytest.mark.parametrize("key", [None, ""])
async def test_children_without_a_key_are_no_resets(db: Any, key: str | None) -> None:
    await db.create_session("p", "cli", session_key=key)
    await db.end_session("p", "idle")
    await db.create_session("c", "cli", parent_session_id="p", session_key=key)
    await db.reopen_session("p")
    assert (await db.get_session("c"))["model_config"] is None


MALFORMED = ["{bad", "", "[1]", '{"a": NaN}', '"text"', '{"_reset_from": "x"', "nul"]


@pytest.mark.parametrize("config", MALFORMED)
async def test_malformed_config_of_a_child_is_replaced(db: Any, raw: Any, config: str) -> None:
    await db.create_session("p", "cli", session_key="k")
    await db.end_session("p", "daily")
    await db.create_session("c", "cli", parent_session_id="p", session_key="k")
    await raw.execute("UPDATE sessions SET model_config = ? WHERE id = 'c'", config)
    await db.reopen_session("p")
    assert await end_of(db, "p") == (None, None)
    assert (await db.get_session("c"))["model_config"] == '{"_reset_from":"p"}'


# Markers in stored JSON, as counting reads them


@pytest.mark.parametrize("config", MALFORMED)
async def test_malformed_config_has_no_markers(db: Any, raw: Any, config: str) -> None:
    await db.create_session("p", "cli")
    await db.create_session("c", "cli", parent_session_id="p")
    await raw.execute(
        "UPDATE sessions SET model_config = ? WHERE id = 'c'", f"{config}_delegate_from"
    )
    assert await db.session_count(exclude_children=True) == 1
    await raw.execute("UPDATE sessions SET model_config = ? WHERE id = 'c'", config)
    assert await db.session_count(exclude_children=True) == 1


@pytest.mark.parametrize(
    ("config", "is_delegate"),
    [
        ('{"_delegate_from": "p"}', True),
        ('{"_delegate_from": ""}', True),
        ('{"_delegate_from": 0}', True),
        ('{"_delegate_from": false}', True),
        ('{"_delegate_from": {"a": []}}', True),
        ('{"_delegate_from": null}', False),
        ('{"a": {"_delegate_from": "p"}}', False),
        ('["_delegate_from"]', False),
        ('{"_delegate_from": "p", "a": "\\u0000"}', True),
        ('{"_delegate_from": "\\ud800"}', True),
        ('{"a": "\\udc00\\\\u0000", "_delegate_from": "\\ud83d\\ude00"}', True),
        ('{"a": "\\u0000", "_delegate_from": null}', False),
        ('{"a": "\\\\\\u0000", "_delegate_from": "p"}', True),
        ('{"_delegate_from": "p", "a": NaN}', False),
    ],
)
async def test_marker_is_read_from_whatever_json(
    db: Any, raw: Any, config: str, is_delegate: bool
) -> None:
    await db.create_session("d", "cli")
    await raw.execute("UPDATE sessions SET model_config = ?", config)
    assert await db.session_count(exclude_children=True) == (0 if is_delegate else 1)


async def test_read_only_store_reads_markers(db: Any, open_store: Any, raw: Any) -> None:
    await db.create_session("d", "cli", model_config={"_delegate_from": "p", "a": "\0"})
    await db.create_session("e", "cli", model_config={"_delegate_from": "p"})
    await raw.execute("UPDATE sessions SET model_config = '{_delegate_from' WHERE id = 'e'")
    assert await open_store(read_only=True).session_count(exclude_children=True) == 1


# Generations


@pytest.mark.parametrize("reason", RESETS)
async def test_reset_advances_the_generation_of_the_peer(db: Any, raw: Any, reason: str) -> None:
    await db.create_session("s", " telegram ", session_key=" k ")
    await db.end_session("s", reason)
    await db.end_session("s", reason)
    assert await generations(raw) == [("telegram", "k", 1)]
    await db.reopen_session("s")
    await db.end_session("s", reason)
    assert await generations(raw) == [("telegram", "k", 2)]


@pytest.mark.parametrize("reason", ["compression", "new_session", "agent_close", None, "free"])
async def test_other_ends_advance_nothing(db: Any, raw: Any, reason: str | None) -> None:
    await db.create_session("s", "telegram", session_key="k")
    await db.end_session("s", reason)
    assert await generations(raw) == []


async def test_session_without_a_peer_advances_nothing(db: Any, raw: Any) -> None:
    for number, (source, key) in enumerate([("", "k"), (" ", "k"), ("cli", None), ("cli", " ")]):
        await db.create_session(f"s{number}", source, session_key=key)
        await db.end_session(f"s{number}", "idle")
    assert await generations(raw) == []


async def test_reset_marker_survives_a_round_trip(db: Any) -> None:
    await db.create_session("p😀", "cli", session_key="k")
    await db.end_session("p😀", "idle")
    await db.create_session("c", "cli", parent_session_id="p😀", session_key="k")
    await db.reopen_session("p😀")
    assert json.loads((await db.get_session("c"))["model_config"]) == {"_reset_from": "p😀"}
    assert await db.session_count(exclude_children=True) == 2
