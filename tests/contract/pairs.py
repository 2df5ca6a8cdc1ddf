"""Two stores that are told the same and must answer the same: the parts of state machines."""

import asyncio
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, run_state_machine_as_test
from sqlalchemy import delete

from hermes_orm import SessionDB
from hermes_orm.dialects import Transaction
from hermes_orm.errors import StoreError
from hermes_orm.models import (
    CompressionLock,
    ConversationGeneration,
    Message,
    Session,
    SessionRecency,
    SessionTurnLease,
    StateMeta,
    SystemPrompt,
)
from tests.contract.session_values import START
from tests.postgres_server import PostgresServer

WRITTEN = (
    CompressionLock,
    SessionTurnLease,
    Message,
    SessionRecency,
    Session,
    SystemPrompt,
    StateMeta,
    ConversationGeneration,
)
LAST_ROW_ID = "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'messages'"
CONTINUE_AT = "SELECT setval(pg_get_serial_sequence('messages', 'id'), {} + 1, false)"


def empty(tx: Transaction) -> None:
    """Take away what the operations here write."""
    for model in WRITTEN:
        tx.connection.execute(delete(model))


def execute(tx: Transaction, statement: str) -> Any:
    return tx.connection.exec_driver_sql(statement).scalar()


async def outcome(store: SessionDB, operation: str, *args: Any, **options: Any) -> str:
    """What an operation answered: value, types and order of keys, or the error."""
    try:
        return repr(await getattr(store, operation)(*args, **options))
    except sqlite3.IntegrityError as error:
        if isinstance(error, StoreError):
            return repr(error)
        return "IntegrityError"  # each database has words of its own
    except Exception as error:  # noqa: BLE001  (whatever it is: the other must raise the same)
        return repr(error)


class Pair(RuleBasedStateMachine):
    """A store on SQLite and one on PostgreSQL that are told the same."""

    def __init__(self, runner: asyncio.Runner, stores: list[SessionDB], clock: Any) -> None:
        super().__init__()
        self.runner, self.stores, self.clock = runner, stores, clock

    def both(self, operation: str, *args: Any, **options: Any) -> str:
        async def outcomes() -> list[str]:
            calls = (outcome(store, operation, *args, **options) for store in self.stores)
            return await asyncio.gather(*calls)

        sqlite, postgres = self.runner.run(outcomes())
        assert sqlite == postgres, operation
        if "Error" in sqlite:
            self.align()
        return sqlite

    def align(self) -> None:
        """Let row ids go on equally: PostgreSQL gives one that was rolled back to nobody else."""
        sqlite, postgres = self.stores
        last = self.runner.run(sqlite.database.read(lambda tx: execute(tx, LAST_ROW_ID)))
        self.runner.run(postgres.database.write(lambda tx: execute(tx, CONTINUE_AT.format(last))))

    @initialize()
    def begin(self) -> None:
        self.clock.time = START
        for store in self.stores:
            self.runner.run(store.database.write(empty))
        self.align()


@contextmanager
def two_stores(
    make_location: Callable[..., str], postgres_server: PostgresServer
) -> Iterator[tuple[asyncio.Runner, list[SessionDB]]]:
    """A store on SQLite, and one on a PostgreSQL database with own rules for order and case."""
    name = f"{postgres_server.prefix}_{os.getpid()}_foreign"
    postgres_server.create_foreign(name)
    foreign = postgres_server.location(name, "postgresql+asyncpg")
    with asyncio.Runner() as runner:
        stores = [SessionDB(location) for location in (make_location("sqlite"), foreign)]
        yield runner, stores
        for store in stores:
            runner.run(store.close())
    postgres_server.drop(name)


def run(machine: Any, default_examples: int) -> None:
    """Run random sequences; HERMES_TEST_STATEFUL_EXAMPLES sets how many, also of long runs."""
    options = settings(
        max_examples=int(os.environ.get("HERMES_TEST_STATEFUL_EXAMPLES", default_examples)),
        stateful_step_count=30,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(machine, settings=options)
