"""Any reports, queued or not, come to the same on both databases, and to what a model says."""

import asyncio
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete, select

from hermes_orm import SessionDB
from hermes_orm.dialects import Transaction
from hermes_orm.dialects.accounting import COUNTERS, ROUTE
from hermes_orm.models import Session, SessionModelUsage
from tests.contract.usage_model import SUMS, Ledger

TABLES = (SessionModelUsage, Session)

counts = st.sampled_from([None, 0, 1, 7, 2**40, -3, float("nan")])
costs = st.sampled_from([None, 0, 0.25, 3, -1, float("inf"), 1e200])
texts = st.sampled_from([None, "", "a", "b"])
reports = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(COUNTERS, counts),
        "estimated_cost_usd": costs,
        "actual_cost_usd": costs,
        "absolute": st.sampled_from([False, False, False, True]),
        **dict.fromkeys(
            (
                "model",
                "billing_provider",
                "billing_base_url",
                "billing_mode",
                "cost_status",
                "cost_source",
                "pricing_version",
            ),
            texts,
        ),
    },
)
calls = st.lists(
    st.one_of(
        st.tuples(st.just("report"), st.sampled_from("st"), reports),
        st.tuples(st.just("auxiliary"), st.sampled_from("st"), texts),
        st.tuples(st.just("route"), st.sampled_from("st"), texts),
        st.tuples(st.just("flush"), st.just(""), st.none()),
    ),
    max_size=12,
)


def check(found: list[list[tuple[Any, ...]]], story: list[tuple[str, str, Any]]) -> None:
    """Compare what a store holds with the model."""
    ledger = Ledger()
    ledger.session("t")["model"] = "a"
    for kind, session_id, told in story:
        if kind != "flush":
            getattr(ledger, kind)(session_id, told)
    spent, sessions = (
        [dict(zip(model.__table__.columns.keys(), values, strict=True)) for values in rows]
        for model, rows in zip(TABLES, found, strict=True)
    )
    keys = ("session_id", *ROUTE, "task")
    assert {tuple(row[k] for k in keys): [row[n] for n in SUMS] for row in spent} == ledger.used
    assert {
        row["id"]: {name: row[name] or 0 if name in SUMS else row[name] for name in (*SUMS, *ROUTE)}
        for row in sessions
    } == ledger.sessions


def contents(tx: Transaction) -> list[list[tuple[Any, ...]]]:
    found = []
    for model in TABLES:
        table = model.__table__
        rows = tx.connection.execute(select(table).order_by(*table.primary_key))
        found.append([tuple(row) for row in rows])
    return found


def empty(tx: Transaction) -> None:
    for model in TABLES:
        tx.connection.execute(delete(model))


async def outcome(db: SessionDB, story: list[tuple[str, str, Any]], *, queued: bool) -> Any:
    await db.database.write(empty)
    report = db.queue_token_counts if queued else db.update_token_counts
    await db.create_session("t", "cli", model="a")
    for kind, session_id, told in story:
        if kind == "report":
            await report(session_id, **told)
        elif kind == "auxiliary":
            await db.record_auxiliary_usage(session_id, "title", model=told, input_tokens=1)
        elif kind == "route":
            await db.update_session_billing_route(session_id, provider=told, base_url="u")
        else:
            await db.flush_token_counts()
    await db.flush_token_counts()
    return await db.database.read(contents)


def test_reports_come_to_the_same(make_location: Callable[..., str], clock: Any) -> None:
    drivers = ("sqlite", "postgresql+asyncpg")
    stores = [SessionDB(make_location(driver)) for driver in drivers]
    with asyncio.Runner() as runner:

        async def outcomes(story: list[tuple[str, str, Any]]) -> list[Any]:
            return [
                await outcome(store, story, queued=queued)
                for store in stores
                for queued in (False, True)
            ]

        @settings(
            max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), database=None
        )
        @given(calls)
        def compare(story: list[tuple[str, str, Any]]) -> None:
            first, *others = runner.run(outcomes(story))
            check(first, story)
            for other in others:
                assert other == first

        compare()
        for store in stores:
            runner.run(store.close())
