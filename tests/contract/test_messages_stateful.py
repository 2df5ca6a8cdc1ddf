"""Random operations on messages give the same on both databases, row ids included."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from tests.contract import message_values as values
from tests.contract.pairs import Pair, run, two_stores
from tests.contract.session_values import configs
from tests.postgres_server import PostgresServer

EXAMPLES = 12
FLAGS = ("include_ancestors", "include_inactive", "repair_alternation", "include_row_ids")

flags = st.fixed_dictionaries({}, optional=dict.fromkeys(FLAGS, st.booleans()))
switches = st.booleans()


class Messages(Pair):
    """Transcripts, their views, undo, compression and leases."""

    @initialize()
    def create(self) -> None:
        for session_id in "abc":
            self.both("create_session", session_id, "cli")

    @rule(seconds=st.sampled_from([0.25, 1.0]))
    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule(
        session_id=values.looked_up,
        role=values.roles,
        content=values.contents,
        options=values.appended,
        lease=values.holders,
        lock=values.holders,
    )
    def append(
        self, session_id: str, role: str, content: Any, options: Any, lease: Any, lock: Any
    ) -> None:
        held = {"turn_lease_holder": lease, "compression_lock_holder": lock}
        self.both("append_message", session_id, role, content, **options, **held)

    @rule(
        session_id=values.sessions,
        turns=values.turns,
        lease=values.holders,
        chunk=st.sampled_from([None, None, 1, 2]),
    )
    def batch(self, session_id: str, turns: Any, lease: Any, chunk: Any) -> None:
        held = {"turn_lease_holder": lease, "chunk_rows": chunk}
        self.both("append_messages_batch", session_id, turns, **held)

    @rule(session_id=values.looked_up, turns=values.turns, active_only=switches, archives=switches)
    def replace(self, session_id: str, turns: Any, active_only: bool, archives: bool) -> None:
        options = {"active_only": active_only, "archive_dropped": archives}
        self.both("replace_messages", session_id, turns, **options)

    @rule(session_id=values.looked_up)
    def clear(self, session_id: str) -> None:
        self.both("clear_messages", session_id)

    @rule(session_id=values.sessions, content=values.contents, sent=st.none() | values.texts)
    def amend(self, session_id: str, content: Any, sent: Any) -> None:
        self.both("set_latest_user_api_content", session_id, content, sent)

    @rule(session_id=values.looked_up, row_id=values.row_ids)
    def undo(self, session_id: str, row_id: int) -> None:
        self.both("rewind_to_message", session_id, row_id)

    @rule(session_id=values.looked_up, row_id=values.row_ids)
    def restore(self, session_id: str, row_id: int) -> None:
        self.both("restore_rewound", session_id, row_id)

    @rule(
        session_id=values.looked_up,
        turns=values.turns,
        patch=st.none() | configs,
        watermark=st.none() | values.row_ids,
        lock=values.holders,
    )
    def compact(self, session_id: str, turns: Any, patch: Any, watermark: Any, lock: Any) -> None:
        self.both("archive_and_compact", session_id, turns, patch, watermark, lock)

    @rule(
        parent=values.looked_up,
        child=values.sessions,
        turns=values.turns,
        lock=values.holders,
        needs_lock=switches,
        watermark=st.none() | values.row_ids,
        ceiling=st.none() | values.row_ids,
    )
    def publish(
        self,
        parent: str,
        child: str,
        turns: Any,
        lock: Any,
        needs_lock: bool,
        watermark: Any,
        ceiling: Any,
    ) -> None:
        self.both(
            "publish_compression_child",
            parent_session_id=parent,
            child_session_id=child,
            source="cli",
            messages=turns,
            compression_lock_holder=lock,
            require_compression_lease=needs_lock,
            watermark=watermark,
            watermark_ceiling=ceiling,
        )

    @rule(session_id=values.looked_up, holder=values.holders)
    def lock(self, session_id: str, holder: Any) -> None:
        self.both("try_acquire_compression_lock", session_id, holder, 36_000)
        self.both("get_compression_lock_holder", session_id)

    @rule(session_id=values.looked_up, holder=values.holders, releases=switches)
    def keep_or_unlock(self, session_id: str, holder: Any, releases: bool) -> None:
        if releases:
            self.both("release_compression_lock", session_id, holder)
        else:
            self.both("refresh_compression_lock", session_id, holder, 36_000)

    @rule(session_id=values.looked_up, holder=values.holders)
    def take_turn(self, session_id: str, holder: Any) -> None:
        self.both("try_acquire_session_turn_lease", session_id, holder, ttl_seconds=36_000)
        self.both("_session_turn_lease_key", session_id)

    @rule(session_id=values.looked_up, holder=values.holders, releases=switches)
    def keep_or_end_turn(self, session_id: str, holder: Any, releases: bool) -> None:
        if releases:
            self.both("release_session_turn_lease", session_id, holder)
        else:
            self.both("refresh_session_turn_lease", session_id, holder, ttl_seconds=36_000)

    @rule(session_id=values.sessions, reason=st.sampled_from(["compression", "idle"]))
    def end(self, session_id: str, reason: str) -> None:
        self.both("end_session", session_id, reason)

    @rule(session_id=values.sessions, parent=st.none() | values.sessions)
    def carry_on(self, session_id: str, parent: Any) -> None:
        self.both("reopen_session", session_id)
        self.both("create_session", session_id, "cli", parent_session_id=parent)

    @rule(
        session_id=values.looked_up,
        inactive=switches,
        limit=values.counts,
        offset=st.sampled_from([0, 1, 3]),
        latest=switches,
        after=st.none() | values.row_ids,
    )
    def page(
        self, session_id: str, inactive: bool, limit: Any, offset: int, latest: bool, after: Any
    ) -> None:
        self.both("get_messages", session_id, inactive, limit, offset, latest, after)
        self.both("list_recent_user_messages", session_id, limit or 20, inactive)
        for role in ("user", "assistant"):
            self.both(
                "latest_message_row_id", session_id, role=role, offset=offset, require_text=latest
            )

    @rule(session_id=values.looked_up, options=flags)
    def resume(self, session_id: str, options: Any) -> None:
        self.both("get_messages_as_conversation", session_id, **options)
        for operation in (
            "get_resume_conversations",
            "get_ancestor_display_prefix",
            "get_resume_message_count",
        ):
            self.both(operation, session_id)
        for operation in ("assert_resume_safe", "assert_export_safe"):
            self.both(operation, session_id, 5)

    @rule(
        session_id=values.looked_up,
        row_id=values.row_ids,
        window=st.sampled_from([0, 1, 2, 5]),
        roles=st.sampled_from([None, ("user",), ("user", "assistant"), ()]),
    )
    def look_around(self, session_id: str, row_id: int, window: int, roles: Any) -> None:
        self.both("get_messages_around", session_id, row_id, window)
        self.both("get_anchored_view", session_id, row_id, window, 1, roles)
        self.both("get_message_role", session_id, row_id)
        self.both("_get_message_storage_state", row_id)

    @rule(session_id=values.looked_up, owner=st.sampled_from(["o1", "o%", "é", ""]))
    def look_up(self, session_id: str, owner: str) -> None:
        for operation in (
            "latest_user_message_row_id",
            "has_archived_messages",
            "get_active_message_watermark",
            "get_first_assistant_text",
            "get_session_rich_row",
        ):
            self.both(operation, session_id)
        self.both("has_platform_message_id", session_id, "p1")
        self.both("has_gateway_input_owner", session_id, owner)
        self.both("find_gateway_input_owner", session_id, owner)

    @rule(query=st.sampled_from(["needle", "温室", "cafe OR hay"]), inactive=switches)
    def search(self, query: str, inactive: bool) -> None:
        self.both("search_messages", query, sort="newest", include_inactive=inactive)

    @invariant()
    def every_row_is_equal(self) -> None:
        for session_id in "abcd":
            self.both("get_messages", session_id, True)
        self.both("list_sessions_rich", limit=None, include_children=True)


@pytest.fixture
def make_machine(
    make_location: Callable[..., str], postgres_server: PostgresServer, clock: Any
) -> Iterator[Callable[[], Messages]]:
    with two_stores(make_location, postgres_server) as (runner, stores):
        yield lambda: Messages(runner, stores, clock)


def test_both_databases_agree(make_machine: Callable[[], Messages]) -> None:
    run(make_machine, EXAMPLES)
