"""Random stores of peers: both databases find the same, and what is found is what it should be."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete, insert, update

from hermes_orm import SessionDB
from hermes_orm.dialects import Transaction
from hermes_orm.dialects.recency import fill_recency
from hermes_orm.models import ConversationGeneration, GatewayRouting, Message, Session
from tests.contract.stories import ids

Row = dict[str, Any]
START = 1767225600.0
NAMES = [f"s{number}" for number in range(7)]
RESET = ("session_reset", "idle")
RECOVERABLE = ("agent_close", "startup_orphan_reap")

keys = st.sampled_from([None, "", "k", "k", "agent:work:k", "agent:main:k"])
sources = st.sampled_from(["tg", "tg", "TG", "tool"])
users = st.sampled_from([None, "", "u", "v"])
chats = st.sampled_from([None, "", "c"])
threads = st.sampled_from([None, "", "1"])
profiles = st.sampled_from([None, "", "work", "default"])
owners = st.sampled_from([None, "work", "default"])
times = st.integers(0, 6).map(lambda step: START + 100.0 * step)
sessions = st.fixed_dictionaries(
    {
        "source": sources,
        "session_key": keys,
        "user_id": users,
        "chat_id": chats,
        "chat_type": st.sampled_from(["dm", "dm", ""]),
        "thread_id": threads,
        "profile_name": profiles,
        "started_at": times,
        "end": st.none() | st.tuples(st.sampled_from(["compression", *RESET, *RECOVERABLE]), times),
        "handoff_state": st.sampled_from([None, None, "completed"]),
        "archived": st.integers(0, 1),
        "parent": st.none() | st.sampled_from(NAMES),
        "marker": st.sampled_from([None, None, None, "_branched_from"]),
        "messages": st.lists(times, max_size=2),
    }
)
questions = st.fixed_dictionaries(
    {
        "source": st.sampled_from(["tg", "TG"]),
        "session_key": st.sampled_from(["k", "agent:work:k", "agent:main:k", "other"]),
        "user_id": users,
        "chat_id": chats,
        "chat_type": st.sampled_from(["dm", "dm", "", None]),
        "thread_id": threads,
    }
)


def fill(told: list[Row]) -> Callable[[Transaction], None]:
    """Return the unit that puts the rows in the place of all others."""

    def work(tx: Transaction) -> None:
        connection = tx.connection
        connection.execute(update(Session).values(parent_session_id=None))
        for model in (Message, Session, ConversationGeneration, GatewayRouting):
            connection.execute(delete(model))
        for name, row in zip(NAMES, told, strict=False):
            reason, ended_at = row["end"] or (None, None)
            marker = row["marker"] and json.dumps({row["marker"]: row["parent"]})
            columns = {k: row[k] for k in row if k in Session.__table__.columns}
            connection.execute(
                insert(Session).values(
                    **columns, id=name, end_reason=reason, ended_at=ended_at, model_config=marker
                )
            )
        for name, row in zip(NAMES, told, strict=False):
            if row["parent"] in NAMES[: len(told)]:
                parent = update(Session).where(Session.id == name)
                connection.execute(parent.values(parent_session_id=row["parent"]))
            for at in row["messages"]:
                connection.execute(
                    insert(Message).values(session_id=name, role="user", timestamp=at)
                )
        fill_recency(connection)

    return work


def latest(told: list[Row], peer: Row, owner: str | None) -> str | None:
    """Return what `find_latest_gateway_session_for_peer` has to find, spelt out."""
    rows = [{**row, "id": name} for name, row in zip(NAMES, told, strict=False)]

    def active(row: Row) -> float:
        return float(max(row["messages"], default=row["started_at"]))

    def choose(found: list[Row]) -> Row | None:
        resets = [row["end"][1] for row in found if row["end"] and row["end"][0] in RESET]
        going = [
            row
            for row in found
            if not row["end"] or row["end"][0] in RECOVERABLE or row["handoff_state"] == "completed"
        ]
        going = [row for row in going if all(at <= active(row) for at in resets)]
        order = ("started_at", "id")
        return max(
            going,
            key=lambda row: (bool(row["messages"]), active(row), *(row[name] for name in order)),
            default=None,
        )

    of_source = [row for row in rows if row["source"] == peer["source"]]
    found = choose([row for row in of_source if row["session_key"] == peer["session_key"]])
    if found is None and peer["chat_id"] is not None and peer["chat_type"] is not None:
        named = {"agent:work:k": "work", "agent:main:k": "default"}.get(peer["session_key"])
        fence = owner or named
        chat = ("user_id", "chat_id", "chat_type", "thread_id")
        near = [
            row
            for row in of_source
            if all((row[name] or "") == (peer[name] or "") for name in chat)
            and (not fence or not row["profile_name"] or row["profile_name"] == fence)
        ]
        found = choose(near)
        if found is not None and not found["messages"]:
            found = None
    return None if found is None else found["id"]


async def outcome(db: SessionDB, told: list[Row], peer: Row, owner: str | None) -> Any:
    await db.database.write(fill(told))
    db.database.own_profile = owner
    found = await db.find_latest_gateway_session_for_peer(**peer)
    origin = {"platform": "Tg", "chat_id": peer["chat_id"]}
    answers: list[Any] = [
        found,
        [
            await db.find_session_by_origin(**origin, thread_id=thread, user_id=user)
            for thread in (None, peer["thread_id"])
            for user in (None, peer["user_id"], "z")
        ],
        [ids(await db.list_gateway_sessions(active_only=flag)) for flag in (True, False)],
        ids(await db.list_gateway_sessions(platform="TG")),
        await db.find_orphaned_gateway_sessions(max_gap_s=150),
    ]
    assert (None if found is None else found["id"]) == latest(told, peer, owner)
    pairs = [(record["orphan_id"], record["donor_id"]) for record in answers[-1]]
    answers += [await db.adopt_orphaned_gateway_session(o, d) for o, d in pairs if d]
    for name in NAMES[:3]:
        answers.append(await db.unarchive_recoverable_session(name))
        answers.append(await db.promote_to_session_reset(name, "idle"))
    await db.record_gateway_session_peer(NAMES[0], **peer, include_compression_ancestors=True)
    answers.append(await db.latest_conversation_boundary("k", "tg"))
    answers.append(await db.list_never_active_keyed_sessions(older_than_days=0))
    answers.append(await db.prune_never_active_keyed_sessions(older_than_days=0))
    rows = await db.search_sessions(limit=None)
    return answers, sorted(rows, key=lambda row: row["id"])


def test_both_databases_find_the_same_peers(make_location: Callable[..., str], clock: Any) -> None:
    clock.time = START + 1000
    stores = [SessionDB(make_location(driver)) for driver in ("sqlite", "postgresql+asyncpg")]
    with asyncio.Runner() as runner:

        async def outcomes(*world: Any) -> list[Any]:
            return [await outcome(store, *world) for store in stores]

        @settings(
            max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), database=None
        )
        @given(st.lists(sessions, max_size=len(NAMES)), questions, owners)
        def compare(told: list[Row], peer: Row, owner: str | None) -> None:
            first, second = runner.run(outcomes(told, peer, owner))
            assert first == second

        try:
            compare()
        finally:
            for store in stores:
                runner.run(store.close())
