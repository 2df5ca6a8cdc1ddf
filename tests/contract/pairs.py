"""Two stores that are told the same and must answer the same: the parts of state machines."""

import asyncio
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import zip_longest
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, run_state_machine_as_test
from sqlalchemy import delete, select

from hermes_orm import SessionDB
from hermes_orm.codec import decode_content
from hermes_orm.dialects import Transaction
from hermes_orm.errors import StoreError
from hermes_orm.models import (
    CompressionLock,
    ConversationGeneration,
    GatewayHygieneState,
    GatewayRouting,
    Message,
    Session,
    SessionModelUsage,
    SessionRecency,
    SessionTurnLease,
    StateMeta,
    SystemPrompt,
)
from hermes_orm.tombstones import Tombstones
from tests.contract.session_values import START
from tests.contract.tables import OF_THE_MOMENT
from tests.postgres_server import PostgresServer

WRITTEN = (
    CompressionLock,
    SessionTurnLease,
    Message,
    SessionModelUsage,
    SessionRecency,
    Session,
    SystemPrompt,
    StateMeta,
    ConversationGeneration,
    GatewayRouting,
    GatewayHygieneState,
)
UNEQUAL = {*OF_THE_MOMENT, "display_order"}
"""Columns that hold chance, the time of the server, or what only upstream's triggers write."""
LAST_ROW_ID = "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'messages'"
CONTINUE_AT = "SELECT setval(pg_get_serial_sequence('messages', 'id'), {} + 1, false)"


def empty(tx: Transaction) -> None:
    """Take away what the operations here write."""
    for model in WRITTEN:
        tx.connection.execute(delete(model))


def everything(tx: Transaction) -> list[tuple[str, ...]]:
    """Return the rows of all these tables as texts."""
    rows = []
    for model in WRITTEN:
        columns = [c for c in model.__table__.columns if c.name not in UNEQUAL]
        for row in tx.connection.execute(select(*columns)):
            values = (decode_content(v) if isinstance(v, str) else v for v in row)
            named = zip(columns, values, strict=True)
            rows.append(tuple(f"{column}={v!r}" for column, v in named if v is not None))
    return sorted(rows)


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


def _first_difference(one: str, other: str) -> str:
    """Show where two answers part; the whole of them would fill pages."""
    parting = (at for at, (mine, others) in enumerate(zip_longest(one, other)) if mine != others)
    at = max(0, next(parting, 0) - 60)
    return f"{one[at : at + 120]} | {other[at : at + 120]}"


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
        assert sqlite == postgres, f"{operation}: {_first_difference(sqlite, postgres)}"
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
            store.database.tombstones = Tombstones()
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
