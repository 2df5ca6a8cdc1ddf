"""Of random stores the same is listed and deleted on both databases, and it is what filters say."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete, insert, select, update

from hermes_orm import SessionDB
from hermes_orm.dialects import Transaction
from hermes_orm.dialects.recency import fill_recency
from hermes_orm.models import Message, Session, SessionRecency
from tests.contract.stories import ids

DAY = 86_400
Row = dict[str, Any]
NAMES = [f"s{number}" for number in range(6)]

texts = st.sampled_from([None, None, "a_b", "A_B%", "axb"])
days = st.sampled_from([0.5, 1.0, 2.0, 5.0])
small = st.sampled_from([0, 1, 3])
flags = st.sampled_from([0, 0, 1])
sessions = st.fixed_dictionaries(
    {
        "source": st.sampled_from(["cli", "tui"]),
        "age": days,
        "ended_at": st.sampled_from([None, 1.0, 1.0]),
        "end_reason": st.sampled_from([None, "done", "compression"]),
        "parent": st.sampled_from([None, None, *NAMES]),
        "delegate_of": st.sampled_from([None, None, None, *NAMES]),
        "title": texts,
        "cwd": st.sampled_from([None, "/w", "/w/x", "/w2"]),
        "billing_provider": st.sampled_from([None, "Pv"]),
        "message_count": small,
        "input_tokens": small,
        "actual_cost_usd": st.sampled_from([None, 0.0, 0.5]),
        "estimated_cost_usd": st.sampled_from([None, 1.0]),
        "archived": flags,
        "pinned": flags,
        "activity": st.sampled_from([None, 0.5, 5.0]),
        "messages": st.lists(days, max_size=2),
    }
)
filters = st.fixed_dictionaries(
    {},
    optional={
        "older_than_days": days,
        "source": st.sampled_from(["", "cli"]),
        "started_before": days,
        "last_active_after": days,
        "title_like": st.sampled_from(["a_b", "%"]),
        "end_reason": st.just("done"),
        "cwd_prefix": st.sampled_from(["/", "/w/"]),
        "provider": st.just("pV"),
        "min_messages": small,
        "max_tokens": small,
        "max_cost": st.sampled_from([0, 0.5]),
        "archived": st.booleans(),
        "include_pinned": st.booleans(),
    },
)


class World:
    """Random sessions, and what filters say about them in plain words."""

    def __init__(self, told: list[Row], now: float) -> None:
        self.now = now
        self.told = dict(zip(NAMES, told, strict=False))
        self.last = {
            name: self.ago(min(row["messages"], default=row["age"]))
            for name, row in self.told.items()
        }

    def matches(self, name: str, wanted: Row) -> bool:
        row = self.told[name]
        start, last = self.ago(row["age"]), self.last[name]
        title, cwd = (row["title"] or "").lower(), row["cwd"] or "nowhere"
        cost = row["actual_cost_usd"]
        cost = (row["estimated_cost_usd"] or 0) if cost is None else cost
        holds: dict[str, Callable[[Any], bool]] = {
            "older_than_days": lambda age: "started_before" in wanted or last < self.ago(age),
            "source": lambda source: source in ("", row["source"]),
            "started_before": lambda at: start < at,
            "last_active_after": lambda at: last >= at,
            "title_like": lambda part: part in title,
            "end_reason": lambda reason: row["end_reason"] == reason,
            "cwd_prefix": lambda path: (cwd + "/").startswith("/" if path == "/" else "/w/"),
            "provider": lambda provider: row["billing_provider"] == "Pv",
            "min_messages": lambda number: row["message_count"] >= number,
            "max_tokens": lambda number: row["input_tokens"] <= number,
            "max_cost": lambda limit: cost <= limit,
            "archived": lambda flag: row["archived"] == flag,
            "include_pinned": lambda included: included or not row["pinned"],
        }
        wanted = {"include_pinned": False, **wanted}
        return row["ended_at"] is not None and all(holds[k](v) for k, v in wanted.items())

    def ago(self, days: float) -> float:
        return self.now - days * DAY

    def stored(self, name: str, told: Row) -> Row:
        marker, activity = told["delegate_of"], told["activity"]
        return {
            **{key: told[key] for key in told if key in Session.__table__.columns},
            "id": name,
            "title": told["title"] and told["title"] + name,
            "started_at": self.ago(told["age"]),
            "last_activity_at": None if activity is None else self.ago(activity),
            "model_config": json.dumps({"_delegate_from": marker}) if marker else None,
            "parent_session_id": told["parent"] if told["parent"] in self.told else None,
        }

    def fill(self, tx: Transaction) -> None:
        connection = tx.connection
        connection.execute(update(Session).values(parent_session_id=None))
        for model in (Message, Session):
            connection.execute(delete(model))
        if not self.told:
            return
        rows = [self.stored(name, row) for name, row in self.told.items()]
        connection.execute(insert(Session), [{**row, "parent_session_id": None} for row in rows])
        for row in rows:
            parent = {"parent_session_id": row["parent_session_id"]}
            if parent["parent_session_id"]:
                connection.execute(update(Session).where(Session.id == row["id"]).values(parent))
        messages = [
            {"session_id": name, "role": "user", "content": name, "timestamp": self.ago(age)}
            for name, row in self.told.items()
            for age in row["messages"]
        ]
        if messages:
            connection.execute(insert(Message), messages)
        fill_recency(connection)


def contents(tx: Transaction) -> Any:
    columns = (Session.id, Session.parent_session_id, Session.archived, Session.auto_archived)
    return [
        sorted(map(tuple, tx.connection.execute(select(*shown))))
        for shown in (
            columns,
            (Message.session_id, Message.timestamp),
            (SessionRecency.session_id,),
        )
    ]


async def outcome(db: SessionDB, world: World, wanted: Row, action: str) -> Any:
    await db.database.write(world.fill)
    listed = ids(await db.list_prune_candidates(**wanted))
    is_open = await db.count_open_prune_matches(**wanted)
    targets = await db.get_session_delete_targets("s0")
    expected = {name for name in world.told if world.matches(name, wanted)}
    assert set(listed) == expected
    if action == "prune":
        assert await db.prune_sessions(**{"older_than_days": None, **wanted}) == len(listed)
        gone = expected
    elif action == "delete":
        assert await db.delete_session("s0", expected_delete_ids=targets) == bool(targets)
        gone = set(targets)
    else:
        gone = set()
        unarchived = {name for name in expected if not world.told[name]["archived"]}
        if "archived" not in wanted:
            assert await db.archive_sessions(**wanted) == len(unarchived)
        await db.archive_stale_sessions(1.5)
    left, messages, recency = await db.database.read(contents)
    names = set(world.told) - gone
    assert {row[0] for row in left} == names == {row[0] for row in recency}
    assert {row[1] for row in left} - {None} <= names
    spoken = [name for name in names for _ in world.told[name]["messages"]]
    assert sorted(row[0] for row in messages) == sorted(spoken)
    return listed, is_open, targets, left, messages


def test_what_is_listed_is_deleted_on_both_databases(
    make_location: Callable[..., str], clock: Any
) -> None:
    drivers = ("sqlite", "postgresql+asyncpg")
    stores = [SessionDB(make_location(driver)) for driver in drivers]
    with asyncio.Runner() as runner:

        async def outcomes(world: World, wanted: Row, action: str) -> list[Any]:
            return [await outcome(store, world, wanted, action) for store in stores]

        @settings(
            max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), database=None
        )
        @given(
            st.lists(sessions, max_size=len(NAMES)),
            filters,
            st.sampled_from(["prune", "delete", "archive"]),
        )
        def compare(told: list[Row], wanted: Row, action: str) -> None:
            world = World(told, clock.time)
            for key in ("started_before", "last_active_after"):
                if key in wanted:
                    wanted[key] = clock.time - wanted[key] * DAY
            first, second = runner.run(outcomes(world, wanted, action))
            assert first == second

        try:
            compare()
        finally:
            for store in stores:
                runner.run(store.close())
