"""Usage summed up over all sessions."""

from typing import Any

import pytest

from tests.contract.conftest import Sent

DAY = 86_400
COUNTERS = ("sessions", "input_tokens", "output_tokens", "api_call_count")


async def spend(db: Any, clock: Any) -> None:
    """Two sessions on three models within two days, one of them with a title made for it."""
    await db.create_session("a", "cli", model="big")
    await db.update_token_counts(
        "a", 100, 10, "big", billing_provider="p", api_call_count=2, estimated_cost_usd=0.5
    )
    await db.record_auxiliary_usage("a", "title", model="small", input_tokens=7)
    clock.advance(DAY)
    await db.create_session("b", "telegram", model="big")
    await db.update_token_counts(
        "b", 50, 5, "big", billing_provider="q", estimated_cost_usd=0.25, actual_cost_usd=0.125
    )
    await db.queue_token_counts("b", input_tokens=1000, model="other", billing_provider="q")


async def groups(db: Any, by: str, *names: str, **bounds: float) -> list[tuple[Any, ...]]:
    rows = await db.usage_statistics(by, **bounds)
    return [tuple(row[name] for name in ("key", *(names or COUNTERS))) for row in rows]


async def test_usage_is_summed_up_in_groups(db: Any, clock: Any) -> None:
    assert await db.usage_statistics() == []
    await spend(db, clock)
    assert await groups(db, "model") == [
        ("other", 1, 1000, 0, 0),
        ("big", 2, 150, 15, 2),
        ("small", 1, 7, 0, 1),
    ]
    assert await groups(db, "provider", "input_tokens") == [("q", 1050), ("p", 100), ("", 7)]
    assert await groups(db, "task", "input_tokens") == [("", 1150), ("title", 7)]
    assert await groups(db, "source", "sessions") == [("telegram", 1), ("cli", 1)]
    assert await groups(db, "day", "input_tokens", "cost_usd") == [
        ("2026-01-01", 107, 0.5),
        ("2026-01-02", 1050, 0.125),
    ]
    start = clock.time - DAY
    assert await groups(db, "day", "sessions", since=start, until=start + DAY) == [
        ("2026-01-01", 1)
    ]
    assert await groups(db, "day", "sessions", since=start + 1) == [("2026-01-02", 1)]


async def test_sessions_without_usage_rows_count(db: Any, clock: Any) -> None:
    await db.import_sessions(
        [{"id": "i", "source": "cli", "model": "m", "started_at": 0.0, "input_tokens": 3}]
    )
    await db.create_session("t", "cron")
    await db.update_token_counts("t", output_tokens=4, absolute=True)
    await db.record_auxiliary_usage("t", "title", model="small", input_tokens=1)
    await db.create_session("unused", "cli", model="never")
    assert await groups(db, "model", "input_tokens", "output_tokens") == [
        ("unknown", 0, 4),
        ("m", 3, 0),
        ("small", 1, 0),
    ]
    assert await groups(db, "day", "sessions") == [("1970-01-01", 1), ("2026-01-01", 1)]


async def test_odd_values_spoil_no_sum(db: Any, raw: Any, clock: Any) -> None:
    most = 2**63 - 1
    for name in ("a", "b"):
        await db.update_token_counts(name, input_tokens=most, model="m", estimated_cost_usd=1.0)
    await raw.execute("UPDATE session_model_usage SET last_seen = 1e300 WHERE session_id = 'a'")
    await raw.execute(
        "UPDATE session_model_usage SET estimated_cost_usd = 9e307 * 10 WHERE session_id = 'a'"
        if db.database.dialect.name == "sqlite"
        else "UPDATE session_model_usage SET estimated_cost_usd = 'NaN' WHERE session_id = 'a'"
    )
    assert await groups(db, "model", "input_tokens", "cost_usd") == [("m", 2**64, 1.0)]
    assert await groups(db, "day", "sessions") == [("", 1), ("2026-01-01", 1)]


async def test_arguments(db: Any, sent: Sent) -> None:
    wrong: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"by": "modle"}, ValueError, "model, provider, task, source, day"),
        ({"since": float("nan")}, ValueError, "since"),
        ({"until": "2026"}, TypeError, "until"),
    ]
    for arguments, error, text in wrong:
        with pytest.raises(error, match=text):
            await db.usage_statistics(**arguments)
    await db.get_meta("k")
    sent()
    await db.usage_statistics("day", since=0, until=1)
    assert sent() == 1
