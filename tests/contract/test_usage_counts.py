"""Token usage: totals of sessions, and the rows of models, routes and tasks."""

import asyncio
import logging
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

ROUTE = ("model", "billing_provider", "billing_base_url", "billing_mode")
COSTS = ("estimated_cost_usd", "actual_cost_usd")
ROW = (*ROUTE, "task", "input_tokens", "api_call_count")


async def totals(db: Any, *names: str, session_id: str = "s") -> tuple[Any, ...]:
    row = await db.get_session(session_id)
    return tuple(row[name] for name in names)


async def rows(raw: Any, *names: str, session_id: str = "s") -> list[tuple[Any, ...]]:
    columns = ", ".join(names or ROW)
    return sorted(
        await raw.fetch(
            f"SELECT {columns} FROM session_model_usage WHERE session_id = ?", session_id
        )
    )


async def test_usage_creates_its_session(db: Any, raw: Any, clock: Any) -> None:  # usage 1, R2
    await db.update_token_counts("n", input_tokens=5)
    names = ("source", "created_source", "input_tokens", "estimated_cost_usd", "actual_cost_usd")
    (row,) = await raw.fetch(f"SELECT {', '.join(names)} FROM sessions WHERE id = 'n'")
    assert row == ("unknown", "unknown", 5, 0.0, None)
    assert await totals(db, "started_at", "model", session_id="n") == (clock.time, None)
    assert await rows(raw, session_id="n") == [("unknown", "", "", "", "", 5, 0)]
    await db.record_auxiliary_usage("z", "title", input_tokens=3, api_call_count=4)  # usage 8
    assert await rows(raw, session_id="z") == [("unknown", "", "", "", "title", 3, 4)]
    assert await totals(
        db, "source", "input_tokens", "api_call_count", "model", session_id="z"
    ) == (("unknown", 0, 0, None))
    assert len(await db.list_sessions_rich(order_by_last_active=True)) == 2


async def test_report_of_nothing(db: Any, raw: Any) -> None:  # usage 2
    await db.create_session("s", "cli", model="m0")
    await db.update_token_counts("s", model="mz", billing_provider="pz")
    assert await totals(db, *ROUTE, "estimated_cost_usd") == ("m0", None, None, None, 0.0)
    await db.create_session("t", "cli")
    await db.update_token_counts("t", model="mz", billing_provider="pz")
    assert await totals(db, *ROUTE, session_id="t") == ("mz", None, None, None)
    assert await rows(raw) == []


async def test_route_that_answers_first_is_kept(db: Any, raw: Any) -> None:  # usage 3
    await db.create_session("s", "cli", model="requested")
    await db.update_session_billing_route("s", provider="p0", base_url="u0", billing_mode="m0")
    await db.update_token_counts("s", model="fb", billing_provider="fp", api_call_count=1)
    assert await totals(db, *ROUTE) == ("fb", "fp", None, None)
    await db.update_token_counts(
        "s", model="later", billing_provider="lp", billing_mode="b", api_call_count=1
    )
    assert await totals(db, *ROUTE) == ("fb", "fp", None, "b")
    assert await rows(raw) == [("fb", "fp", "", "", "", 0, 1), ("later", "lp", "", "b", "", 0, 1)]


async def test_model_without_a_provider_overrides_nothing(db: Any, raw: Any) -> None:  # usage 4
    await db.create_session("s", "cli", model="req")
    await db.update_session_billing_route("s", provider="rp", base_url="u")
    await db.update_token_counts("s", model="other", api_call_count=1)
    assert await totals(db, *ROUTE) == ("req", "rp", "u", None)
    assert await rows(raw) == [("other", "rp", "u", "", "", 0, 1)]
    await db.update_token_counts("s", input_tokens=1)
    assert await rows(raw) == [("other", "rp", "u", "", "", 0, 1), ("req", "rp", "u", "", "", 1, 0)]


async def test_absolute_totals(db: Any, raw: Any, session: str) -> None:  # usage 5
    names = ("input_tokens", "output_tokens", "api_call_count", *COSTS)
    for _ in range(2):
        await db.update_token_counts(
            "s", input_tokens=20, output_tokens=1, estimated_cost_usd=0.5, actual_cost_usd=0.25
        )
    before = await rows(raw)
    await db.update_token_counts("s", input_tokens=100, api_call_count=3, absolute=True)
    assert await totals(db, *names) == (100, 0, 3, 0.0, 0.5)
    await db.update_token_counts(
        "s", estimated_cost_usd=2.0, actual_cost_usd=0.0, model="m", absolute=True
    )
    assert await totals(db, *names, "model") == (0, 0, 0, 2.0, 0.0, "m")
    assert await rows(raw) == before
    await db.update_token_counts("new", input_tokens=7, absolute=True)
    assert await totals(db, *names, session_id="new") == (7, 0, 0, 0.0, None)


async def test_none_counts_as_nothing(db: Any, session: str) -> None:  # usage 6
    await db.update_token_counts("s", input_tokens=None, output_tokens=2)
    await db.update_token_counts("s", input_tokens=5, api_call_count=None)
    assert await totals(db, "input_tokens", "output_tokens", "api_call_count") == (5, 2, 0)


async def test_last_description_wins(db: Any, raw: Any, session: str) -> None:  # usage 7
    names = ("cost_status", "cost_source", "pricing_version")
    for given, stored in [
        (("est", None, "v1"), ("est", None, "v1")),
        ((None, "table", None), ("est", "table", "v1")),
        (("exact", None, "v2"), ("exact", "table", "v2")),
    ]:
        described = dict(zip(names, given, strict=True))
        await db.update_token_counts("s", input_tokens=1, **described)
        assert await totals(db, *names) == stored
    assert await rows(raw, *names[:2]) == [("exact", "table")]


async def test_actual_cost_alone_makes_no_usage_row(db: Any, raw: Any, session: str) -> None:
    await db.update_token_counts("s", actual_cost_usd=0.5, model="m", billing_provider="p")
    assert await totals(db, *COSTS, "billing_provider") == (0.0, 0.5, "p")
    assert await rows(raw) == []
    await db.update_token_counts("s", actual_cost_usd=0.25, input_tokens=1)
    assert await totals(db, *COSTS) == (0.0, 0.75)
    assert await rows(raw, *COSTS) == [(0.0, 0.25)]


async def test_auxiliary_usage_inherits_no_route(db: Any, raw: Any, clock: Any) -> None:
    await db.create_session("s", "cli", model="m")
    await db.update_session_billing_route("s", provider="p", base_url="u")
    before = await db.get_session("s")
    began = clock.time
    for task in ("title", "title", "vision", "", None):
        await db.record_auxiliary_usage("s", task, input_tokens=2, estimated_cost_usd=0.5)
        clock.time += 1
    await db.record_auxiliary_usage("", "title", input_tokens=2)
    await db.record_auxiliary_usage("s", "title", model="x", billing_provider="y")
    assert await rows(raw) == [
        ("unknown", "", "", "", "title", 4, 2),
        ("unknown", "", "", "", "vision", 2, 1),
        ("x", "y", "", "", "title", 0, 1),
    ]
    assert (await rows(raw, "first_seen", "last_seen"))[0] == (began, began + 1)
    assert await db.get_session("s") == before


async def test_model_switch_in_the_middle(db: Any, raw: Any, session: str) -> None:  # R3
    await db.update_token_counts(
        "s", input_tokens=100, model="A", billing_provider="p1", api_call_count=1
    )
    await db.update_session_model("s", "B")
    await db.update_token_counts(
        "s", input_tokens=50, model="B", billing_provider="p2", api_call_count=1
    )
    await db.record_auxiliary_usage("s", "title", model="C", input_tokens=7)
    assert await rows(raw, "model", "billing_provider", "task", "input_tokens") == [
        ("A", "p1", "", 100),
        ("B", "p2", "", 50),
        ("C", "", "title", 7),
    ]
    assert await totals(db, "model", "billing_provider", "input_tokens") == ("B", "p1", 150)


async def test_counters_have_64_bits(db: Any, raw: Any, session: str) -> None:  # B3
    many = 3_000_000_000
    for _ in range(2):
        await db.update_token_counts("s", input_tokens=many, cache_read_tokens=many)
    await db.record_auxiliary_usage("s", "title", input_tokens=many)
    assert await totals(db, "input_tokens", "cache_read_tokens") == (2 * many, 2 * many)
    assert await rows(raw, "task", "input_tokens") == [("", 2 * many), ("title", many)]
    for call in (db.update_token_counts, db.queue_token_counts):
        with pytest.raises(ValueError, match="input_tokens does not fit into 64 bits"):
            await call("s", input_tokens=2**63)
    for _ in range(2):  # a sum stops there
        await db.update_token_counts("s", input_tokens=2**63 - 1)
    assert await totals(db, "input_tokens") == (2**63 - 1,)
    assert (await rows(raw, "task", "input_tokens"))[0] == ("", 2**63 - 1)


async def test_impossible_numbers_are_ignored(
    db: Any, session: str, caplog: pytest.LogCaptureFixture
) -> None:  # B4, usage 41
    nan, inf = float("nan"), float("inf")
    for number, bad in enumerate((nan, inf, -inf, -3, 1.3e179, Decimal("NaN"), 10**400), 1):
        await db.update_token_counts("s", input_tokens=1, estimated_cost_usd=bad)
        await db.update_token_counts("s", actual_cost_usd=bad)
        assert await totals(db, "input_tokens", *COSTS) == (number, 0.0, None)
    await db.update_token_counts("s", estimated_cost_usd=0.5)
    for bad in (-5, nan, inf, -inf):
        await db.update_token_counts("s", input_tokens=bad, api_call_count=bad, output_tokens=1)
    assert await totals(db, "input_tokens", "api_call_count", "output_tokens", *COSTS) == (
        (7, 0, 4, 0.5, None)
    )
    await db.update_token_counts(
        "s", input_tokens=-1, output_tokens=2, estimated_cost_usd=nan, absolute=True
    )
    assert await totals(db, "input_tokens", "output_tokens", *COSTS) == (7, 2, 0.5, None)
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        await db.update_token_counts("s", input_tokens=-5, output_tokens=2, estimated_cost_usd=nan)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "input_tokens, estimated_cost_usd" in caplog.text
    with pytest.raises(TypeError, match="input_tokens must be a number"):
        await db.update_token_counts("s", input_tokens="5")
    await db.update_token_counts("s", output_tokens=2.0, estimated_cost_usd=Decimal("0.25"))
    assert await totals(db, "output_tokens", "estimated_cost_usd") == (6, 0.75)


async def test_spoilt_totals_begin_anew(db: Any, raw: Any, session: str) -> None:
    spoilt = "'NaN'" if raw.is_postgres else "9e999"
    report = {"input_tokens": 1, "estimated_cost_usd": 0.5, "actual_cost_usd": 0.25}
    word = "NULL" if raw.is_postgres else "'many'"
    for costs, counter in ((spoilt, "NULL"), ("NULL", word), (word, word)):
        await raw.execute(
            f"UPDATE sessions SET estimated_cost_usd = {costs}, actual_cost_usd = {costs},"
            f" input_tokens = {counter}, api_call_count = NULL"
        )
        await db.update_token_counts("s", **report)
        assert await totals(db, *COSTS, "input_tokens") == (0.5, 0.25, 1)


async def test_text_of_a_report(db: Any, raw: Any, session: str) -> None:
    await db.update_token_counts("s", input_tokens=1, model="m\0\ud800", billing_provider="p\0")
    assert await totals(db, "model", "billing_provider") == ("m\ufffd\ufffd", "p\ufffd")
    assert await rows(raw, *ROUTE[:2]) == [("m\ufffd\ufffd", "p\ufffd")]
    with pytest.raises(ValueError, match="session id"):
        await db.update_token_counts("s\0", input_tokens=1)


async def test_reports_of_two_stores_add_up(
    db: Any, raw: Any, open_store: Callable[..., Any]
) -> None:
    stores = [db, open_store()]
    await asyncio.gather(
        *(
            store.update_token_counts("s", input_tokens=1, model="m", api_call_count=1)
            for store in stores
            for _ in range(25)
        )
    )
    assert await totals(db, "input_tokens", "api_call_count") == (50, 50)
    assert await rows(raw) == [("m", "", "", "", "", 50, 50)]


async def test_route_used_last(db: Any, clock: Any, session: str) -> None:
    assert await db.get_recent_session_model_route("s") is None
    assert await db.get_recent_session_model_route("nope\0") is None
    for model, provider in [("a", "p"), ("b", "q"), ("a", "p"), ("c", ""), ("b", "q")]:
        clock.time += 1
        await db.update_token_counts("t", model=model, billing_provider=provider, api_call_count=1)
        await db.record_auxiliary_usage("s", "title", model=model, billing_provider="p")
    await db.queue_token_counts("s", model="a", billing_provider="p", input_tokens=1)
    route = {"billing_base_url": "", "billing_mode": "", "api_call_count": 2}
    assert await db.get_recent_session_model_route("t") == {
        "model": "b",
        "billing_provider": "q",
        **route,
    }
    assert (await db.get_recent_session_model_route("s"))["model"] == "a"
