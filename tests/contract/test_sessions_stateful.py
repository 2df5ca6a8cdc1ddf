"""Random operations on sessions give the same on both databases, step by step.

PostgreSQL's is a database with rules of its own for order and case, where the server has such.
HERMES_TEST_STATEFUL_EXAMPLES sets how many sequences are run; 1000 take about five minutes.
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule
from sqlalchemy import update

from hermes_orm.models import Session
from tests.contract.pairs import Pair, run, two_stores
from tests.contract.session_values import (
    config_texts,
    configs,
    counted,
    fields,
    foreign_values,
    ids,
    keys,
    list_options,
    long_texts,
    lookups,
    messages,
    odd_texts,
    paths,
    queries,
    reasons,
    searched,
    sources,
    stamps,
    titles,
)
from tests.postgres_server import PostgresServer

EXAMPLES = 15

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


class Sessions(Pair):
    """Operations on sessions."""

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

    @rule(session_id=ids, values=foreign_values)
    def interfere(self, session_id: str, values: Any) -> None:
        """Write what only other programs do, rings of parents included."""
        change = update(Session).where(Session.id == session_id).values(values)
        for store in self.stores:
            with suppress(sqlite3.IntegrityError):
                self.runner.run(store.database.write(lambda tx: tx.connection.execute(change)))

    @rule(session_id=lookups, key=keys)
    def look_up(self, session_id: Any, key: str) -> None:
        for operation in LOOK_UPS:
            self.both(operation, session_id)
        self.both("get_session_model_config_value", session_id, key, "default")

    @rule(title=titles | long_texts)
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
def make_machine(
    make_location: Callable[..., str], postgres_server: PostgresServer, clock: Any
) -> Iterator[Callable[[], Sessions]]:
    with two_stores(make_location, postgres_server) as (runner, stores):
        yield lambda: Sessions(runner, stores, clock)


def test_both_databases_agree(make_machine: Callable[[], Sessions]) -> None:
    run(make_machine, EXAMPLES)
