"""`hermes_session_recency` follows sessions and messages, however they are changed."""

import math
import random
from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import Connection, delete, func, insert, select, text, update

from hermes_orm.dialects.postgresql import ddl as postgresql_ddl
from hermes_orm.dialects.recency import fill_recency, recency_definition
from hermes_orm.dialects.sqlite import ddl as sqlite_ddl
from hermes_orm.models import Message, Session, SessionRecency
from tests.dialects.schemas import change, fresh_sqlite, sqlite_file
from tests.raw import postgres_engine

Recency = dict[str, float]


@pytest.fixture(params=["sqlite", "postgresql+psycopg"])
def database(
    request: pytest.FixtureRequest, make_location: Callable[..., str]
) -> Iterator[Connection]:
    """A connection to a new database, in a transaction."""
    if request.param == "sqlite":
        with sqlite_file() as connection:
            change(connection, sqlite_ddl.create_head)
            yield connection
        return
    engine = postgres_engine(make_location(request.param, empty=True))
    with engine.begin() as connection:
        postgresql_ddl.create_head(connection)
        yield connection
    engine.dispose()


def add_session(
    database: Connection, name: str, started_at: float, last_activity_at: float | None = None
) -> None:
    database.execute(
        insert(Session).values(
            id=name, source="cli", started_at=started_at, last_activity_at=last_activity_at
        )
    )


def append(database: Connection, session: str, *timestamps: float) -> list[int]:
    """Add messages as a store does: on PostgreSQL the appending statement refreshes recency."""
    ids = [
        database.scalar(
            insert(Message)
            .values(session_id=session, role="user", timestamp=timestamp)
            .returning(Message.id)
        )
        for timestamp in timestamps
    ]
    if database.dialect.name == "postgresql":
        database.execute(select(func.hermes_recency_refresh([session])))
    return [id for id in ids if id is not None]


def stored(database: Connection) -> Recency:
    rows = database.execute(select(SessionRecency.session_id, SessionRecency.last_active))
    return {row.session_id: row.last_active for row in rows}


def expected(database: Connection) -> Recency:
    signs: dict[str, list[float]] = {}
    for session, timestamp in database.execute(select(Message.session_id, Message.timestamp)):
        signs.setdefault(session, []).append(timestamp)
    sessions = database.execute(select(Session.id, Session.last_activity_at, Session.started_at))
    return {
        session: max(
            [*signs.get(session, ()), *(() if activity is None else (activity,))], default=start
        )
        for session, activity, start in sessions
    }


def test_a_new_session_was_last_active_when_it_started(database: Connection) -> None:
    add_session(database, "plain", 10)
    add_session(database, "busy", 10, last_activity_at=5)
    assert stored(database) == {"plain": 10, "busy": 5}


def test_the_first_message_may_be_older_than_the_start(database: Connection) -> None:
    add_session(database, "s", 10)
    append(database, "s", 3)
    assert stored(database) == {"s": 3}
    append(database, "s", 2)
    assert stored(database) == {"s": 3}
    append(database, "s", 4)
    assert stored(database) == {"s": 4}


def test_an_old_message_does_not_undo_recorded_activity(database: Connection) -> None:
    add_session(database, "s", 1, last_activity_at=10)
    append(database, "s", 3)
    assert stored(database) == {"s": 10}


def test_deletions_reveal_the_message_before(database: Connection) -> None:
    add_session(database, "s", 1)
    first, second, third = append(database, "s", 3, 9, 5)
    database.execute(delete(Message).where(Message.id == second))
    assert stored(database) == {"s": 5}
    database.execute(delete(Message).where(Message.id.in_([first, third])))
    assert stored(database) == {"s": 1}


def test_deleting_one_of_two_simultaneous_messages_changes_nothing(database: Connection) -> None:
    add_session(database, "s", 1)
    first, _ = append(database, "s", 3, 3)
    database.execute(delete(Message).where(Message.id == first))
    assert stored(database) == {"s": 3}


def test_corrected_times_count(database: Connection) -> None:
    add_session(database, "s", 1)
    add_session(database, "other", 1)
    first, _ = append(database, "s", 3, 5)
    database.execute(update(Message).where(Message.id == first).values(timestamp=8))
    assert stored(database)["s"] == 8
    database.execute(update(Message).where(Message.id == first).values(timestamp=4))
    assert stored(database)["s"] == 5
    database.execute(update(Session).where(Session.id == "s").values(last_activity_at=7))
    assert stored(database)["s"] == 7
    database.execute(update(Session).where(Session.id == "s").values(last_activity_at=None))
    assert stored(database)["s"] == 5
    database.execute(update(Message).values(session_id="other"))
    assert stored(database) == {"s": 1, "other": 5}
    database.execute(update(Session).values(started_at=2))
    assert stored(database) == {"s": 2, "other": 5}


def test_many_sessions_disappear_at_once(database: Connection) -> None:
    for name in "abc":
        add_session(database, name, 1)
        append(database, name, 2, 3)
    database.execute(delete(Message).where(Message.session_id != "a"))
    assert stored(database) == {"a": 3, "b": 1, "c": 1}
    database.execute(delete(Session).where(Session.id != "a"))
    assert stored(database) == {"a": 3}


@pytest.mark.parametrize("absurd", [math.inf, -math.inf, 1.7e12, -1e12])
def test_what_is_no_time_counts_as_absent(database: Connection, absurd: float) -> None:
    add_session(database, "never", absurd)
    add_session(database, "s", 1, last_activity_at=absurd)
    assert stored(database) == {"never": 0, "s": 1}
    _, second = append(database, "s", absurd, 0.5)
    assert stored(database) == {"never": 0, "s": 0.5}
    database.execute(update(Message).where(Message.id == second).values(timestamp=absurd))
    assert stored(database) == {"never": 0, "s": 1}
    database.execute(update(Session).values(last_activity_at=7))
    assert stored(database) == {"never": 7, "s": 7}
    database.execute(update(Session).values(started_at=absurd, last_activity_at=absurd))
    fill_recency(database)
    assert stored(database) == {"never": 0, "s": 0}


def test_filling_repairs_whatever_was_stored(database: Connection) -> None:
    add_session(database, "missing", 1)
    add_session(database, "wrong", 2)
    append(database, "wrong", 4)
    database.execute(delete(SessionRecency).where(SessionRecency.session_id == "missing"))
    database.execute(update(SessionRecency).values(last_active=99))
    database.execute(insert(SessionRecency).values(session_id="gone", last_active=1))
    fill_recency(database)
    assert stored(database) == {"missing": 1, "wrong": 4}


@pytest.mark.parametrize("seed", range(4))
def test_recency_is_right_after_any_writes(database: Connection, seed: int) -> None:
    chance = random.Random(seed)
    names = ["a", "b", "c"]

    def some_time() -> float:
        return float(chance.randint(1, 9))

    def some_activity() -> float | None:
        return chance.choice([None, some_time()])

    for _ in range(60):
        name = chance.choice(names)
        messages = list(database.scalars(select(Message.id)))
        sample = chance.sample(messages, min(len(messages), chance.randint(1, 3)))
        exists = database.scalar(select(Session.id).where(Session.id == name)) is not None
        match chance.randrange(7):
            case 0 if not exists:
                add_session(database, name, some_time(), some_activity())
            case 1 | 2 if exists:
                append(database, name, *(some_time() for _ in range(chance.randint(1, 3))))
            case 3:
                database.execute(delete(Message).where(Message.id.in_(sample)))
            case 4:
                moved = {"timestamp": some_time()} | ({"session_id": name} if exists else {})
                database.execute(update(Message).where(Message.id.in_(sample)).values(moved))
            case 5:
                corrected = {"started_at": some_time(), "last_activity_at": some_activity()}
                database.execute(update(Session).where(Session.id == name).values(corrected))
            case 6 if chance.random() < 0.4:
                database.execute(delete(Message).where(Message.session_id == name))
                database.execute(delete(Session).where(Session.id == name))
        assert stored(database) == expected(database)
    defined = database.execute(recency_definition())
    assert {row.session_id: row.last_active for row in defined} == expected(database)


@pytest.mark.parametrize("policy", ["OR IGNORE", "OR REPLACE"])
def test_another_programs_conflict_policy_changes_nothing_on_sqlite(policy: str) -> None:
    with fresh_sqlite() as driver:
        driver.execute("INSERT INTO sessions (id, source, started_at) VALUES ('s', 'cli', 5)")
        driver.execute("INSERT INTO messages (session_id, role, timestamp) VALUES ('s', 'user', 3)")
        driver.execute(f"UPDATE {policy} sessions SET last_activity_at = 7 WHERE id = 's'")
        recency = "SELECT last_active FROM hermes_session_recency"
        assert driver.execute(recency).fetchall() == [(7.0,)]
        driver.execute(
            f"INSERT {policy} INTO sessions (id, source, started_at) VALUES ('s', 'cli', 9)"
        )
        activity = driver.execute("SELECT last_activity_at FROM sessions").fetchone()[0]
        assert driver.execute(recency).fetchall() == [(activity or 3.0,)]


def test_the_cost_of_an_append_does_not_grow_with_the_transcript_on_sqlite() -> None:
    steps = 0

    def count() -> None:
        nonlocal steps
        steps += 1

    with fresh_sqlite() as driver:
        driver.execute("INSERT INTO sessions (id, source, started_at) VALUES ('s', 'cli', 9e9)")

        def append(timestamp: float) -> None:
            driver.execute(
                "INSERT INTO messages (session_id, role, timestamp) VALUES ('s', 'user', ?)",
                (timestamp,),
            )

        def cost(timestamp: float) -> int:
            nonlocal steps
            steps = 0
            driver.set_progress_handler(count, 1)
            append(timestamp)
            driver.set_progress_handler(None, 1)
            return steps

        append(100.0)
        newer, older = cost(200.0), cost(50.0)
        for number in range(1000):
            append(200.0 + number)
        assert cost(5000.0) <= newer
        assert cost(50.0) <= older


def test_statements_from_another_search_path_count_on_postgresql(
    make_location: Callable[..., str],
) -> None:
    engine = postgres_engine(make_location("postgresql+psycopg", empty=True))
    with engine.begin() as connection:
        connection.execute(text("CREATE SCHEMA profile"))
        connection.execute(text("SET search_path = profile"))
        postgresql_ddl.create_head(connection)
        connection.execute(text("SET search_path = public"))
        connection.execute(
            text("INSERT INTO profile.sessions (id, source, started_at) VALUES ('s', 'cli', 5)")
        )
        connection.execute(text("UPDATE profile.sessions SET last_activity_at = 7"))
        recency = text("SELECT last_active FROM profile.hermes_session_recency")
        assert connection.scalar(recency) == 7
        connection.execute(text("DELETE FROM profile.sessions"))
        assert connection.scalar(recency) is None
    engine.dispose()
