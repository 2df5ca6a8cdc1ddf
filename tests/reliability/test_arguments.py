"""Every operation, told what it does not expect, on all databases side by side.

It answers, or refuses by an error of its own that shows no content. Nothing of others changes,
the store goes on working, and all drivers agree on the answer and on what is stored.
"""

import asyncio
import inspect
import logging
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from hermes_orm import SessionDB
from hermes_orm.errors import StoreError
from hermes_orm.tombstones import Tombstones
from tests.conftest import DRIVERS
from tests.contract.pairs import UNEQUAL, everything
from tests.contract.samples import seed
from tests.contract.tables import Tables
from tests.reliability.odd_values import NAMED, SECRET, Call, calls, operations, sample

START = 1767225600.0
WITHIN = 20.0
LONGEST = 5_000
BYSTANDER = "bystander"
ADDRESS = re.compile(" at 0x[0-9a-f]+|(?<=hash=')[0-9a-f]{64}|(?<==)-(?=0.0$)")
"""What differs between texts and hashes of equal things, and what SQLite makes of -0.0."""
MEASURED = {"vacuum", "optimize_fts_storage", "claim_event_delivery"}
"""Operations whose results are measurements of a database, or chance."""
RAISING = {
    "create_session": {"IntegrityError"},  # sessions.md 1.7
    "ensure_session": {"IntegrityError"},
    "bind_telegram_topic": {"IntegrityError"},  # gateway.md 5
    "restore_compression_failure_cooldown_row": {"RuntimeError"},
    "archive_and_compact": {"RuntimeError"},  # messages.md 1.4
    "publish_compression_child": {"RuntimeError", "IntegrityError"},
}
"""Other errors that an operation documents."""
SWEEPING = {"backfill_null_session_profiles"}
"""Operations on all sessions that a filter does not leave out."""
SHOWN = {
    *("session_id", "parent_session_id", "child_session_id", "source", "title", "platform"),
    *("old_name", "new_name", "fields"),
}
"""Names and ids, which errors may name."""


FOUND: list[tuple[str, str, tuple[Any, ...], str]] = [
    ("register_backend_heartbeat", "pid", (), "bytes"),  # was shown by int()
    ("pending_retries", "now", (), "text class"),
    ("rewind_to_message", "target_message_id", (), "opaque"),
    ("set_compression_fallback_streak", "streak", (), "4611686018427387904"),  # 32 bits there
    ("mark_attempting", "receipt", (1,), "-inf"),  # OverflowError
    ("record_compression_failure_cooldown", "cooldown_until", (), "nan"),
    ("insert_gateway_routing_rows_if_absent", "rows", (0, 3), "nan"),  # NULL there, NaN here
    ("insert_gateway_routing_rows_if_absent", "rows", (), "'s'"),  # IndexError
    ("find_live_compression_child", "parent_session_id", (), "deep list"),  # RecursionError
    ("has_gateway_input_owner", "owner", (), "deep list"),
    ("set_session_title_source", "source", (), "deep dict"),
    ("append_message", "content", (), "deep list"),
    ("record_delegation_completion", "evt", (), "'s'"),  # AttributeError
    ("replace_gateway_routing_entries", "entries", (), "5"),
    ("backfill_repo_roots", "cwd_to_root", (), "5"),
    ("relabel_telegram_topic_rows", "rows", (0,), "dict of text"),  # KeyError
    ("relabel_telegram_topic_rows", "rows", (0,), "5"),
    ("import_moved_session", "payload", ("messages", 3), "'s'"),
    ("import_moved_session", "payload", ("messages", 3, "content"), "inf"),
    ("import_moved_session", "payload", ("messages", 3, "compacted"), "9007199254740993"),
    ("restore_compression_failure_cooldown_row", "snapshot", (), "5"),
    ("restore_undelivered_completions", "target_queue", (), "5"),
    ("search_sessions_by_id", "query", (), "pairs"),
    ("set_meta", "cursor", (), "'s'"),
    ("_is_compression_child_row", "child", (), "'s'"),
    ("complete_handoff", "only_states", (0,), "nan"),  # malformed JSON
    ("delete_session", "sessions_dir", (), "half a character"),  # after the deletion
    ("claim_event_delivery", "consumer", (), "deep list"),
    ("search_sessions_by_id", "sources", (), "1 MB"),  # taken for a million sources
    ("insert_gateway_routing_rows_if_absent", "rows", (0, 3), "'1e400'"),  # malformed JSON
    ("list_cron_job_runs", "job_id", (), "deep list"),
    ("import_moved_session", "payload", ("session", "last_activity_at"), "nan"),
    ("record_delegation_dispatch", "task", ("goal",), "deep dict"),
    ("record_crash_left_reply", "adapter_profile", (), "1 MB"),  # longer than an index holds
    ("rekey_profile_state", "old_name", (), "1 MB"),
    ("rekey_legacy_main_sessions", "profile", (), "1 MB"),
    ("rekey_profile_state", "new_name", (), "1 MB"),
    ("key_profiles_for_chat", "platform", (), "60,000 characters"),  # pattern too complex
    ("gateway_routing_entry_for_session", "session_id", (), "60,000 characters"),
    ("rewind_to_message", "session_id", (), "1 MB"),  # all of it in the error
    ("append_message", "session_id", (), "1 MB"),
    ("acquire_session_turn_lease", "acquire_patience_s", (), "-inf"),  # OverflowError
    ("try_acquire_session_turn_lease", "patience_s", (), "nan"),
]
"""What was found once: an operation, an argument, where in it, and the odd value."""


class Lines(logging.Handler):
    """Keeps what is logged, with the errors."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.setFormatter(logging.Formatter())
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@pytest.fixture
def lines() -> Iterator[list[str]]:
    """What any library logs, from DEBUG on."""
    handler, root = Lines(), logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield handler.lines
    root.setLevel(level)
    root.removeHandler(handler)


def shape(value: Any, depth: int = 0) -> Any:
    """Return a result as it must be on every database: times by their type."""
    if depth > 20:
        return None  # an argument that came back
    if isinstance(value, float):
        return float
    if isinstance(value, dict):
        return [(k, None if k in UNEQUAL else shape(v, depth + 1)) for k, v in value.items()]
    if isinstance(value, list | tuple):
        return type(value), [shape(inner, depth + 1) for inner in value]
    if isinstance(value, bool | int | None):
        return value
    return type(value), ADDRESS.sub("", value if isinstance(value, str) else repr(value))


def shown(error: BaseException | None) -> Iterator[str]:
    """Yield what a traceback or a log shows of an error and of those behind it."""
    while error is not None:
        yield f"{type(error).__name__} {error} {error!r}"
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


class Drivers:
    """A store on each driver, all told the same."""

    def __init__(self, locations: list[str], clock: Any, lines: list[str]) -> None:
        self.clock, self.lines = clock, lines
        self.locations = locations
        self.stores = [SessionDB(location) for location in locations]
        self.tables: list[Tables] = []
        self.before: dict[SessionDB, set[tuple[str, ...]]] = {}
        self.moments: list[int] = []
        self.prepared: list[int] = []
        self.samples = {name: sample(name, method) for name, method in operations().items()}

    async def prepare(self) -> None:
        """Fill the stores, and remember what they hold."""
        for store, location in zip(self.stores, self.locations, strict=True):
            await seed(store)
            await store.create_session(BYSTANDER, BYSTANDER, cwd=f"/{BYSTANDER}", model="%_*")
            await store.append_message(BYSTANDER, "user", "' OR 1=1 -- % _ * AND needle")
            await store.set_session_title(BYSTANDER, '%_\' OR "x" *')
            await store.set_session_pinned(BYSTANDER, True)
            self.tables.append(Tables(location))
            self.before[store] = set(await store.database.read(everything))
        self.moments = self.prepared = self.now()
        store = self.stores[0]
        entry: Any = await store.export_session("s")  # holds every key
        self.samples["import_sessions"] = {"sessions": [{**entry, "id": "imported"}]}
        moved: Any = await store.export_session_for_move("s")
        moved["session"]["id"] = "moved"
        self.samples["import_moved_session"]["payload"] = moved

    async def tell(self, call: Call) -> None:
        """Call all stores; fail where they do what they must not, or differ."""
        self.clock.time = START
        self.lines.clear()
        outcomes = await asyncio.gather(*(outcome(store, call) for store in self.stores))
        errors = [error for _, error in outcomes if error is not None]
        leaks = leaked(call, [*(text for error in errors for text in shown(error)), *self.lines])
        assert not leaks, f"shows what it was given: {leaks}"
        answers = [judged(call, error) if error else shape(result) for result, error in outcomes]
        if call.operation in MEASURED and not errors:
            answers = []
        for driver, answer in zip(DRIVERS, answers, strict=False):
            assert answer == answers[0], f"{driver} differs: {parting(answers[0], answer)}"
        if self.moments != (moments := self.now()):
            self.moments = moments
            changes = [await self.changes(store) for store in self.stores]
            if call.operation not in SWEEPING:
                others = [row for change in changes for row in change if is_of_bystander(row)]
                assert not others, f"changes others: {others}"
            if not errors:
                for driver, change in zip(DRIVERS, changes, strict=True):
                    parts = sorted(change ^ changes[0])
                    assert not parts, f"{driver} stores otherwise: {parts}"

    def now(self) -> list[int]:
        return [tables.moment() for tables in self.tables]

    async def changes(self, store: SessionDB) -> set[tuple[str, ...]]:
        """Return the rows that are gone or new."""
        changed = self.before[store] ^ set(await store.database.read(everything))
        return {
            tuple(ADDRESS.sub("", value) for value in row)
            for row in changed
            if not row[0].startswith("state_meta.key='fts_")  # each database has its own
        }

    def restore(self) -> None:
        """Put back what the stores held."""
        is_changed = self.now() != self.prepared
        for store, tables in zip(self.stores, self.tables, strict=True):
            if is_changed:
                tables.restore()
            store.database.tombstones = Tombstones()
        self.moments = self.prepared = self.now()

    async def close(self) -> None:
        """Close all."""
        for store, tables in zip(self.stores, self.tables, strict=True):
            tables.close()
            await store.close()


async def outcome(store: SessionDB, call: Call) -> tuple[Any, Exception | None]:
    """Return what comes of a call: a result, or an error."""
    arguments = call.arguments()
    try:
        async with asyncio.timeout(WITHIN):
            made = getattr(store, call.operation)(**arguments)
            result = [part async for part in made] if inspect.isasyncgen(made) else await made
            await store.flush_token_counts()
    except Exception as error:  # noqa: BLE001  (it is judged)
        return None, error
    return result, None


def judged(call: Call, error: Exception) -> str:
    """Return an error as it must be on every database; fail for one that nobody expects."""
    texts = list(shown(error))
    name = type(error).__name__
    if name == "StoreIntegrityError":
        name = "IntegrityError"  # each database has words of its own
    is_documented = isinstance(error, StoreError) or type(error) in (TypeError, ValueError)
    assert is_documented or name in RAISING.get(call.operation, ()), f"undocumented: {texts}"
    if name == "IntegrityError":
        return name
    assert len(texts[0]) < LONGEST, f"too long: {texts[0][:200]}"
    return ADDRESS.sub("", f"{type(error).__name__}: {error}")


def leaked(call: Call, texts: list[str]) -> list[str]:
    """Return what shows a value that is content, or a secret."""
    hidden = {name for name, _, _ in call.odd} - SHOWN
    marks = {f"{SECRET}-{name}" for name in hidden}
    return [text[:400] for text in texts if any(mark in text for mark in marks)]


def is_of_bystander(row: tuple[str, ...]) -> bool:
    return any(f"id={BYSTANDER!r}" in value for value in row)


def parting(one: Any, other: Any) -> str:
    """Show where two answers part."""
    mine, others = repr(one), repr(other)
    at = next(
        (at for at, pair in enumerate(zip(mine, others, strict=False)) if pair[0] != pair[1]), 0
    )
    start = max(0, at - 80)
    return f"{mine[start : at + 150]} | {others[start : at + 150]}"


@pytest.mark.parametrize("inputs", [200, pytest.param(20_000, marks=pytest.mark.full)])
def test_no_argument_breaks_an_operation(
    make_location: Callable[..., str], clock: Any, lines: list[str], inputs: int
) -> None:
    drivers = Drivers([make_location(driver) for driver in DRIVERS], clock, lines)
    with asyncio.Runner() as runner:
        runner.run(drivers.prepare())

        for name, argument, way, odd in FOUND:
            call = Call(name, drivers.samples[name], ((argument, way, NAMED[odd]),))
            runner.run(drivers.tell(call))
            drivers.restore()

        @settings(
            max_examples=inputs,
            derandomize=inputs < 1_000,
            database=None,
            phases=[Phase.generate],  # calls are small as they are
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(calls(drivers.samples))
        def run(call: Call) -> None:
            try:
                runner.run(drivers.tell(call))
            finally:
                drivers.restore()

        run()
        runner.run(drivers.close())
