"""How many statements message operations send; a greater number needs a reason."""

import time
from typing import Any

import pytest

from hermes_orm.errors import SessionTurnLeaseLostError, UnknownSessionError
from tests.contract.conftest import Sent
from tests.contract.turns import assistant, user

LEASE = "INSERT INTO session_turn_leases VALUES ('s', 'H', 1, ?)"


@pytest.fixture
def each_append(raw: Any) -> int:
    """Statements of an append: PostgreSQL joins what SQLite does with two."""
    return 1 if raw.is_postgres else 2


async def test_appending(db: Any, session: str, sent: Sent, each_append: int) -> None:
    sent()
    await db.append_message(session, "user", "x")
    assert sent() == each_append
    await db.append_messages_batch(session, [user("x"), assistant("y", "1")] * 50)
    assert sent() == each_append
    await db.append_messages_batch(session, [user("x")] * 5, chunk_rows=2)
    assert sent() == 3 * each_append
    await db.append_messages_batch(session, [])
    assert sent() == 0


@pytest.mark.parametrize("expires_in", [60, -60])
async def test_appending_under_a_lease(
    db: Any, raw: Any, session: str, sent: Sent, each_append: int, expires_in: float
) -> None:
    await raw.execute(LEASE, time.time() + expires_in)
    with_lease = 1 if raw.is_postgres else 3
    sent()
    await db.append_message(session, "user", "x", turn_lease_holder="H")
    assert sent() == with_lease
    await db.append_messages_batch(session, [user("x")] * 50, turn_lease_holder="H")
    assert sent() == with_lease


async def test_a_refusal_costs_one_more(db: Any, session: str, sent: Sent) -> None:
    sent()
    with pytest.raises(UnknownSessionError):
        await db.append_message("nope", "user", "x")
    assert sent() == 2
    with pytest.raises(SessionTurnLeaseLostError):
        await db.append_message(session, "user", "x", turn_lease_holder="H")
    assert sent() == 2


async def test_reading(db: Any, session: str, sent: Sent) -> None:
    await db.append_messages_batch(session, [user("x")] * 2000)
    sent()
    for read in (
        db.get_messages(session),
        db.get_messages(session, latest=True, limit=50, offset=50),
        db.get_messages(session, after_id=5, limit=50),
        db.get_messages_as_conversation(session),
        db.get_messages_as_conversation(session, include_ancestors=True, repair_alternation=True),
    ):
        assert await read
        assert sent() == 1


async def test_reading_in_steps(db: Any, raw: Any, session: str, sent: Sent) -> None:
    await db.append_messages_batch(session, [user("x")] * 2500)
    sent()
    await db.get_messages(session)
    assert sent() == (4 if raw.is_postgres else 1), "a look, then three steps in a snapshot"
    await db.get_messages(session, limit=2000)
    assert sent() == 1
