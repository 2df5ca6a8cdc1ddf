"""Signs of life: when, and what went on."""

import asyncio
import contextlib
import enum
import sqlite3
from collections.abc import Callable
from typing import Any

import pytest

from hermes_orm import ActivityProvenance, ReadOnlyStoreError, SessionDB

Sent = Callable[[], int]
Stored = tuple[float | None, str | None, str | None]


class HostProvenance(str, enum.Enum):  # noqa: UP042  (as host applications spell theirs)
    COMPRESSION = "agent.compression"


class PlainProvenance(enum.Enum):
    TIMEOUT = "agent.compression_timeout"


async def stored(db: SessionDB, session_id: str) -> Stored:
    row = await db.get_session(session_id)
    assert row is not None
    return (
        row["last_activity_at"],
        row["last_activity_description"],
        row["last_activity_provenance"],
    )


def test_provenances_are_closed() -> None:
    assert {member.name: member.value for member in ActivityProvenance} == {
        "UNKNOWN": "unknown",
        "AGENT_COMPRESSION": "agent.compression",
        "AGENT_COMPRESSION_TIMEOUT": "agent.compression_timeout",
        "AGENT_COMPRESSION_COOLDOWN": "agent.compression_cooldown",
    }


async def test_only_newer_stamps_count(db: SessionDB, session: str) -> None:
    touch = db.touch_session_activity
    assert await stored(db, session) == (None, None, None)
    await touch(session, 100, description=" d ", provenance="agent.compression")
    assert await stored(db, session) == (100.0, "d", "agent.compression")
    await touch(session, 100, description="eq")
    await touch(session, 99.9, description="old", provenance="unknown")
    assert await stored(db, session) == (100.0, "d", "agent.compression")
    await touch(session, 101, description="z" * 121, provenance="bogus")
    assert await stored(db, session) == (101.0, "z" * 119 + "…", "unknown")
    await touch(session, 102)
    assert await stored(db, session) == (102.0, "", "unknown")


async def test_zero_is_a_time(db: SessionDB, session: str) -> None:
    await db.touch_session_activity(session, -5)
    await db.touch_session_activity(session, 0)
    assert (await stored(db, session))[0] == 0.0


async def test_now_is_the_default(db: SessionDB, session: str, clock: Any) -> None:
    await db.touch_session_activity(session)
    assert await stored(db, session) == (clock(), "", "unknown")
    assert type((await stored(db, session))[0]) is float


async def test_ended_sessions_are_touched(db: SessionDB, session: str) -> None:
    await db.end_session(session, "done")
    await db.touch_session_activity(session, "7.5")  # type: ignore[arg-type]
    assert (await stored(db, session))[0] == 7.5


@pytest.mark.parametrize("ts", ["soon", "", float("nan"), float("inf"), -float("inf")])
async def test_time_that_is_none(db: SessionDB, session: str, ts: Any) -> None:
    with pytest.raises(ValueError, match=r"ts|float"):
        await db.touch_session_activity(session, ts, description="x")
    assert await stored(db, session) == (None, None, None)


@pytest.mark.parametrize(
    ("provenance", "known"),
    [
        (HostProvenance.COMPRESSION, "agent.compression"),
        (PlainProvenance.TIMEOUT, "agent.compression_timeout"),
        (ActivityProvenance.AGENT_COMPRESSION_COOLDOWN, "agent.compression_cooldown"),
        ("unknown", "unknown"),
        ("AGENT_COMPRESSION", "unknown"),
        ("", "unknown"),
        ("  ", "unknown"),
        (None, "unknown"),
        (5, "unknown"),
        ("\ud800\0", "unknown"),
    ],
)
async def test_provenance_is_a_known_one(
    db: SessionDB, session: str, provenance: Any, known: str
) -> None:
    await db.touch_session_activity(session, 1, provenance=provenance)
    assert (await stored(db, session))[2] == known


@pytest.mark.parametrize(
    ("description", "kept"),
    [
        ("z" * 120, "z" * 120),
        ("😀" * 121, "😀" * 119 + "…"),
        ("  \n", ""),
        ("a\0b\ud800", "a\ufffdb\ufffd"),
        ("a\nb", "a\nb"),
        (" " + "z" * 120 + " ", "z" * 120),
        (5, "5"),
    ],
)
async def test_description_is_bounded(
    db: SessionDB, session: str, description: Any, kept: str
) -> None:
    await db.touch_session_activity(session, 1, description=description)
    assert (await stored(db, session))[1] == kept


async def test_unknown_sessions_are_no_errors(db: SessionDB) -> None:
    await db.create_session("", "cli")
    unknown: Any
    for unknown in ("nope", "", None, "a\0", "a\ud800"):
        await db.touch_session_activity(unknown, 5)
        await db.clear_session_activity_labels(unknown)
        assert await db.get_session_activity(unknown) is None
    assert await stored(db, "") == (None, None, None)


async def test_activity_moves_a_session_up(db: SessionDB, clock: Any) -> None:
    for name in "ab":
        await db.create_session(name, "cli")
        clock.advance(1)
    await db.touch_session_activity("a")
    rows = await db.list_sessions_rich(order_by_last_active=True)
    assert [(row["id"], row["last_active"]) for row in rows] == [
        ("a", clock()),
        ("b", clock() - 1),
    ]


# Labels


async def test_clearing_keeps_the_time(db: SessionDB, session: str) -> None:
    await db.create_session("never", "cli")
    await db.touch_session_activity(session, 5, description="d", provenance="agent.compression")
    for name in (session, "never"):
        await db.clear_session_activity_labels(name)
    assert await stored(db, session) == (5.0, "", "unknown")
    assert await stored(db, "never") == (None, None, None)


@pytest.mark.parametrize(
    ("labels", "cleared"),
    [
        ((None, None), (None, None)),
        (("", None), ("", None)),
        ((None, ""), (None, "")),
        (("", "unknown"), ("", "unknown")),
        (("d", None), ("", "unknown")),
        ((None, "bogus"), ("", "unknown")),
        (("", "agent.compression"), ("", "unknown")),
    ],
)
async def test_clear_labels_stay_as_they_are(
    db: SessionDB, session: str, raw: Any, labels: Any, cleared: Any
) -> None:
    await raw.execute(
        "UPDATE sessions SET last_activity_description = ?, last_activity_provenance = ?", *labels
    )
    await db.clear_session_activity_labels(session)
    assert (await stored(db, session))[1:] == cleared


# Reading


async def test_activity_of_a_fresh_session(db: SessionDB, session: str) -> None:
    assert await db.get_session_activity(session) == {
        "last_activity_at": None,
        "last_activity_ts": None,
        "last_activity_description": "",
        "last_activity_desc": "",
        "description": "",
        "last_activity_provenance": "unknown",
        "provenance": "unknown",
        "seconds_since_activity": None,
    }


async def test_activity_tells_how_long_ago(db: SessionDB, session: str, clock: Any) -> None:
    await db.touch_session_activity(session, description="d", provenance="agent.compression")
    at = clock()
    for passed, seconds in [(0, 0.0), (1.26, 1.3), (-10, -8.7)]:
        clock.advance(passed)
        assert await db.get_session_activity(session) == {
            "last_activity_at": at,
            "last_activity_ts": at,
            "last_activity_description": "d",
            "last_activity_desc": "d",
            "description": "d",
            "last_activity_provenance": "agent.compression",
            "provenance": "agent.compression",
            "seconds_since_activity": seconds,
        }


async def test_labels_of_others_are_bounded(db: SessionDB, session: str, raw: Any) -> None:
    await raw.execute(
        "UPDATE sessions SET last_activity_at = 1, last_activity_description = ?, "
        "last_activity_provenance = 'else'",
        "z" * 500,
    )
    activity = await db.get_session_activity(session)
    assert activity is not None
    assert activity["description"] == "z" * 119 + "…"
    assert activity["provenance"] == "unknown"


# Statements, contention


async def test_each_is_one_statement(db: SessionDB, session: str, sent: Sent) -> None:
    for call in (
        db.touch_session_activity(session, description="d"),
        db.clear_session_activity_labels(session),
        db.get_session_activity(session),
    ):
        await call
        assert sent() == 1


async def test_touch_gives_up_soon(db: SessionDB, session: str, raw: Any) -> None:
    loop = asyncio.get_running_loop()
    await db.touch_session_activity(session, 4, description="d")
    with raw.engine.connect() as connection:
        connection.exec_driver_sql("UPDATE sessions SET model = 'm'")
        for call in (
            db.touch_session_activity(session, 5, description="d"),
            db.clear_session_activity_labels(session),
        ):
            began = loop.time()
            with pytest.raises(Exception, match="locked"):
                await call
            assert loop.time() - began < 3
        connection.rollback()
    await db.touch_session_activity(session, 5)
    assert (await stored(db, session))[0] == 5.0


async def test_writers_of_one_session_do_not_deadlock(
    db: SessionDB, open_store: Any, session: str
) -> None:
    stores = [db, open_store()]

    async def write(store: SessionDB, name: int) -> None:
        for number in range(15):
            await store.append_message(session, "user", "x")
            with contextlib.suppress(sqlite3.OperationalError):  # it gives up after half a second
                await store.touch_session_activity(session, number)
            await store.set_session_title(session, f"{name} {number}")
            await store.set_session_pinned(session, True)

    await asyncio.gather(*(write(stores[name % 2], name) for name in range(4)))
    assert await db.message_count(session) == 60
    await db.touch_session_activity(session, 14)
    assert (await stored(db, session))[0] == 14.0


async def test_read_only_store_refuses_by_name(
    db: SessionDB, session: str, open_store: Any
) -> None:
    replica = open_store(read_only=True)
    with pytest.raises(ReadOnlyStoreError, match="touch_session_activity:"):
        await replica.touch_session_activity(session)
    with pytest.raises(ReadOnlyStoreError, match="clear_session_activity_labels:"):
        await replica.clear_session_activity_labels(session)
    assert await replica.get_session_activity(session) is not None
