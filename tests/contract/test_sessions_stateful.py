"""Random operations on sessions give the same on both databases, step by step.

PostgreSQL's is a database with rules of its own for order and case, where the server has such.
HERMES_TEST_STATEFUL_EXAMPLES sets how many sequences are run; 1000 take about five minutes.
"""

import asyncio
import os
import sqlite3
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import delete

from hermes_orm import SessionDB
from hermes_orm.dialects import Transaction
from hermes_orm.errors import StoreError
from hermes_orm.models import (
    ConversationGeneration,
    Message,
    Session,
    SessionRecency,
    StateMeta,
    SystemPrompt,
)
from tests.postgres_server import PostgresServer

EXAMPLES = int(os.environ.get("HERMES_TEST_STATEFUL_EXAMPLES", "15"))
START = 1767225600.0
WRITTEN = (Message, SessionRecency, Session, SystemPrompt, StateMeta, ConversationGeneration)

ids = st.sampled_from(["a", "b", "c", "A", "ab", "a_b", "axb", "é", "I", "i"])
lookups = ids | st.sampled_from([None, "", "unknown", "a\x00", "a\ud800", "x" * 60_000])
parents = st.none() | ids | st.sampled_from(["", "unknown"])
odd_texts = st.text(max_size=8) | st.sampled_from(["", "x\ud800", "a\x00b", "ÉCOLE", "%_\\", " k "])
reasons = st.sampled_from(
    [*["compression"] * 5, "branched", "session_reset", "idle", "agent_close", "", None, "r\x00"]
)
stems = st.sampled_from(
    [
        "Foo",
        "foo",
        "fOO",
        "TITLE",
        "title",
        "ı",
        "École",
        "éCOLE",
        "100%",
        "a_b",
        "x" * 100,
        "y" * 98,
    ]
)
segments = st.builds("{} #{}".format, stems, st.sampled_from(["2", "3", "07", "9" * 25, "x", "٣"]))
bad_titles = st.sampled_from(["", None, "  A\t\n b ", "\u200b", "x" * 101, "a\ud800", 5, " #2"])
titles = stems | stems | segments | bad_titles | odd_texts
paths = st.sampled_from([None, "", " ", "/", "/w", "/w/", "/w/x", "/W/x", "/w2", "\\w", "/w%"])
stamps = st.none() | st.sampled_from([0, START, START + 1, "5", -1.5, 2**31, "soon"])
markers = st.sampled_from(["_branched_from", "_delegate_from", "_reset_from"])
keys = markers | st.sampled_from(["k", "browser_model_lock"])
nested = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats() | ids | odd_texts,
    lambda parts: st.lists(parts, max_size=2) | st.dictionaries(odd_texts, parts, max_size=2),
    max_leaves=4,
)
configs = st.dictionaries(keys, nested, max_size=3)
config_texts = st.sampled_from(
    [
        None,
        "",
        "{bad",
        "[1]",
        '"_delegate_from"',
        '{"k": NaN}',
        '{"_delegate_from": NaN}',
        '{"_delegate_from": "a", "_delegate_from": null}',
        '{"_branched_from": null, "_branched_from": "a"}',
        '{"_branched_from": 1.0}',
        '{"_branched_from": 1e400}',
        '{"_branched_from": [1, 2]}',
        '{"_branched_from": {"a": [1,2.50]}}',
        '{"_branched_from": "\\ud800"}',
        '{"_reset_from": "\\u0000"}',
        '{"_reset_from": false}',
        '{"\\u005freset_from": "a"}',
        "{'_branched_from': 'a'}",
        '{"_branched_from": "a",}',
        ' {"_delegate_from": ""} ',
        '\ufeff{"_delegate_from": "a"}',
        '{"_delegate_from": "a"}\x00',
        '{"_delegate_from": ' + "[" * 2000 + "]" * 2000 + "}",
    ]
)
fields = st.fixed_dictionaries(
    {},
    optional={
        "model": st.none() | odd_texts,
        "model_config": st.none() | configs | config_texts,
        "system_prompt": st.none() | st.sampled_from(["P", "Q", ""]) | odd_texts,
        "user_id": st.sampled_from([None, "u", "v\x00"]),
        "session_key": st.sampled_from([None, "", "k", "agent:main:telegram:dm:1"]),
        "chat_id": odd_texts,
        "parent_session_id": parents,
        "cwd": paths | odd_texts,
        "profile_name": st.sampled_from([None, "main", "other"]),
        "git_repo_root": paths,
        "origin_json": st.sampled_from([None, "{}"]),
        "title": st.just("not accepted"),
    },
)
sources = st.sampled_from(["cli", "cli", "cli", "tool", "", "tg"])
some_sources = st.sampled_from([None, [], ["cli"], ["tool", ""], ["unknown"]])
numbers = st.sampled_from([None, -1, 0, 1, 2, 3, 10, 2**63])
queries = odd_texts | stems | ids | st.sampled_from([None, " ", "foo", "É", "é", "_", "f o", "#"])
filters = {
    "source": st.sampled_from([None, "", "cli", "tool"]),
    "sources": some_sources,
    "exclude_sources": some_sources,
    "cwd_prefix": paths,
    "min_message_count": st.sampled_from([-1, 0, 1, 2]),
    "include_archived": st.booleans(),
    "archived_only": st.booleans(),
    "include_hidden": st.booleans(),
}
list_options = st.fixed_dictionaries(
    {},
    optional={
        **filters,
        "limit": numbers,
        "offset": numbers.filter(lambda number: number is not None),
        "include_children": st.booleans(),
        "project_compression_tips": st.booleans(),
        "order_by_last_active": st.booleans(),
        "id_query": queries,
        "search_query": queries | titles.filter(lambda title: not isinstance(title, int)),
        "compact_rows": st.booleans(),
        "include_pinned": st.booleans(),
        "session_key": st.sampled_from([None, "", "k"]),
    },
)
searched = st.fixed_dictionaries(
    {},
    optional={
        name: filters.get(name, numbers)
        for name in ("source", "sources", "exclude_sources", "include_archived", "limit")
    },
)
counted = st.fixed_dictionaries({}, optional={**filters, "exclude_children": st.booleans()})
skills = st.builds('[IMPORTANT: The user has invoked the "{}" skill.'.format, odd_texts)
messages = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "user", "assistant", "tool"])},
    optional={
        "content": st.none() | odd_texts | skills | st.just([{"type": "text", "text": "see"}]),
        "timestamp": stamps,
        "tool_calls": st.just([{"id": "c", "function": {"name": "f", "arguments": "{}"}}]),
    },
)

LOOK_UPS = (
    "get_session",
    "get_session_rich_row",
    "get_first_assistant_text",
    "resolve_session_id",
    "get_session_title",
    "get_session_title_source",
    "get_session_activity",
    "get_compression_tip",
    "resolve_resume_session_id",
    "get_compression_lineage",
    "get_conversation_root",
    "find_live_compression_child",
    "message_count",
    "get_messages_as_conversation",
)
TITLE_LOOK_UPS = ("get_session_by_title", "resolve_session_by_title", "get_next_title_in_lineage")
FLAGS = ("archived", "pinned", "hidden", "read")


def empty(tx: Transaction) -> None:
    """Take away what the operations here write."""
    for model in WRITTEN:
        tx.connection.execute(delete(model))


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
        return sqlite

    @initialize()
    def begin(self) -> None:
        self.clock.time = START
        for store in self.stores:
            self.runner.run(store.database.write(empty))

    @rule(seconds=st.sampled_from([0.0, 0.25, 60.0, 604_801.0]))
    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule(session_id=ids, source=sources, options=fields, ensures=st.booleans())
    def create(self, session_id: str, source: str, options: Any, ensures: bool) -> None:
        name = "ensure_session" if ensures else "create_session"
        self.both(name, session_id, source, **options)

    @rule(parent=ids, session_id=ids, options=fields)
    def carry_on(self, parent: str, session_id: str, options: Any) -> None:
        self.both("end_session", parent, "compression")
        self.both("create_session", session_id, "cli", **{**options, "parent_session_id": parent})

    @rule(session_id=lookups, reason=reasons)
    def end(self, session_id: Any, reason: Any) -> None:
        self.both("end_session", session_id, reason)

    @rule(session_id=lookups)
    def reopen(self, session_id: Any) -> None:
        self.both("reopen_session", session_id)

    @rule(session_id=lookups)
    def repair(self, session_id: Any) -> None:
        self.both("reopen_orphaned_compression_session", session_id)
        self.both("finalize_orphaned_compression_sessions")

    @rule(session_id=lookups, title=titles)
    def set_title(self, session_id: Any, title: Any) -> None:
        self.both("set_session_title", session_id, title)

    @rule(session_id=ids, title=titles, source=st.sampled_from(["derived", "llm", "user", "x"]))
    def set_automatic_title(self, session_id: str, title: Any, source: str) -> None:
        self.both("set_auto_title", session_id, title, source=source)
        self.both("set_session_title_source", session_id, source)

    @rule(session_id=ids, title=titles)
    def name_untitled(self, session_id: str, title: Any) -> None:
        self.both("set_auto_title_if_empty", session_id, title)

    @rule(session_id=lookups, flag=st.sampled_from(FLAGS), value=st.booleans())
    def set_flag(self, session_id: Any, flag: str, value: bool) -> None:
        self.both(f"set_session_{flag}", session_id, value)

    @rule(session_id=lookups, ts=stamps, description=st.none() | odd_texts | st.just("z" * 121))
    def touch(self, session_id: Any, ts: Any, description: Any) -> None:
        self.both("touch_session_activity", session_id, ts, description=description)

    @rule(session_id=lookups)
    def clear_labels(self, session_id: Any) -> None:
        self.both("clear_session_activity_labels", session_id)

    @rule(session_id=lookups, text=config_texts, model=st.none() | odd_texts)
    def store_meta(self, session_id: Any, text: Any, model: Any) -> None:
        self.both("update_session_meta", session_id, text, model)

    @rule(session_id=lookups, patch=configs)
    def patch(self, session_id: Any, patch: Any) -> None:
        self.both("patch_session_model_config", session_id, patch)

    @rule(session_id=lookups, text=st.none() | odd_texts, options=configs)
    def route(self, session_id: Any, text: Any, options: Any) -> None:
        self.both("update_session_runtime_lock", session_id, model=text, model_options=options)
        self.both("update_session_billing_route", session_id, provider=text, base_url=text)
        self.both("update_system_prompt", session_id, text)

    @rule(session_id=lookups, model=st.none() | odd_texts)
    def switch(self, session_id: Any, model: Any) -> None:
        self.both("update_session_model", session_id, model)

    @rule(session_id=lookups, cwd=paths, branch=odd_texts, root=paths, replaces=st.booleans())
    def move(self, session_id: Any, cwd: Any, branch: Any, root: Any, replaces: bool) -> None:
        self.both("update_session_cwd", session_id, cwd, branch, root, replaces)

    @rule(roots=st.dictionaries(paths | odd_texts, paths, max_size=3))
    def backfill(self, roots: Any) -> None:
        self.both("backfill_repo_roots", roots)
        self.both("distinct_session_cwds", bool(roots))

    @rule(session_id=ids, turns=st.lists(messages, min_size=1, max_size=3))
    def converse(self, session_id: str, turns: list[Any]) -> None:
        self.both("append_messages_batch", session_id, turns)

    @rule(key=odd_texts, value=st.none() | st.booleans() | st.integers() | st.floats() | odd_texts)
    def remember(self, key: str, value: Any) -> None:
        self.both("set_meta", key, value)
        self.both("get_meta", key)

    @rule(session_id=lookups, key=keys)
    def look_up(self, session_id: Any, key: str) -> None:
        for operation in LOOK_UPS:
            self.both(operation, session_id)
        self.both("get_session_model_config_value", session_id, key, "default")

    @rule(title=titles)
    def look_up_title(self, title: Any) -> None:
        for operation in TITLE_LOOK_UPS:
            self.both(operation, title)

    @rule(options=list_options)
    def list_some(self, options: Any) -> None:
        self.both("list_sessions_rich", **options)

    @rule(query=queries, options=searched, source=sources, workspace=paths | odd_texts)
    def search(self, query: Any, options: Any, source: str, workspace: Any) -> None:
        self.both("search_sessions_by_id", query, **options)
        self.both("search_sessions", source, options.get("limit"), workspace_key=workspace)
        self.both("list_skill_scaffolded_sessions")
        self.both("count_empty_sessions", include_pinned=bool(source))

    @rule(options=counted, n=st.integers(-1, 4))
    def count(self, options: Any, n: int) -> None:
        self.both("session_count", **options)
        flags = ("include_archived", "archived_only", "exclude_children", "include_hidden")
        chosen = {name: value for name, value in options.items() if name in flags}
        self.both("session_count_by_source", **chosen)
        self.both("session_count_ge", n)

    @invariant()
    def every_row_is_equal(self) -> None:
        everything = {"include_children": True, "include_archived": True, "include_hidden": True}
        self.both("list_sessions_rich", limit=None, **everything)


@pytest.fixture
def pair(
    make_location: Callable[..., str], postgres_server: PostgresServer, clock: Any
) -> Iterator[Callable[[], Pair]]:
    name = f"{postgres_server.prefix}_{os.getpid()}_foreign"
    postgres_server.create_foreign(name)
    foreign = postgres_server.location(name, "postgresql+asyncpg")
    with asyncio.Runner() as runner:
        stores = [SessionDB(location) for location in (make_location("sqlite"), foreign)]
        yield lambda: Pair(runner, stores, clock)
        for store in stores:
            runner.run(store.close())
    postgres_server.drop(name)


def test_both_databases_agree(pair: Callable[[], Pair]) -> None:
    options = settings(
        max_examples=EXAMPLES,
        stateful_step_count=30,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    machine: Any = pair  # (a function that makes one will do)
    run_state_machine_as_test(machine, settings=options)
