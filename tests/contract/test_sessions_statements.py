"""How many statements session operations send; a greater number needs a reason."""

from typing import Any

from tests.contract.conftest import Sent


async def test_creating(db: Any, sent: Sent) -> None:
    fields = {"model": "m", "model_config": {"a": 1}, "cwd": "/w", "session_key": "k"}
    await db.create_session("s", "cli", **fields)
    assert sent() == 1
    await db.create_session("s", "cli", cwd="/w")
    assert sent() == 1
    await db.create_session("s", "cli", **fields)
    assert sent() == 2, "the stored config is looked at: it may be a placeholder"
    await db.create_session("p", "cli", **fields, system_prompt="P")
    assert sent() == 4, "lock, look for the prompt, store it, insert"
    await db.create_session("q", "cli", **fields, system_prompt="P")
    assert sent() == 3
    await db.create_session("q", "cli", system_prompt="Q")
    assert sent() == 2
    await db.create_session("c", "cli", parent_session_id="s")
    assert sent() == 4, "lock, insert, read the pair, inherit"
    await db.create_session("c", "cli", parent_session_id="s")
    assert sent() == 3


async def test_ending(db: Any, sent: Sent) -> None:
    await db.create_session("s", "cli", session_key="k")
    sent()
    await db.end_session("s", "compression")
    assert sent() == 1
    await db.reopen_session("s")
    assert sent() == 2
    await db.reopen_session("s")
    assert sent() == 1
    await db.end_session("s", "idle")
    assert sent() == 2
    for child in "abcde":
        await db.create_session(child, "cli", parent_session_id="s", session_key="k")
    sent()
    await db.reopen_session("s")
    assert sent() == 4, "lock, read the children, mark them, reopen"


async def test_reading(db: Any, sent: Sent) -> None:
    await db.create_session("s", "cli", system_prompt="P")
    sent()
    for read in (
        db.get_session("s"),
        db.session_count(sources=["cli"], exclude_children=True),
        db.session_count_by_source(),
        db.session_count_ge(3),
        db.message_count("s"),
        db.message_count(),
        db.get_meta("k"),
        db.set_meta("k", "v"),
    ):
        await read
        assert sent() == 1
