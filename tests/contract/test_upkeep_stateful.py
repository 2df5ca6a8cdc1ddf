"""Random usage, deletion, export, import and gateway work end with equal tables on both databases.

HERMES_TEST_STATEFUL_EXAMPLES sets how many sequences are run. `sweep_orphaned_sessions` is missing:
it goes by the clock of the server.
"""

from collections.abc import Callable, Iterator
from itertools import zip_longest
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from tests.contract import message_values
from tests.contract import upkeep_values as values
from tests.contract.pairs import Pair, everything, run, two_stores
from tests.contract.session_values import fields
from tests.postgres_server import PostgresServer

EXAMPLES = 8


class Upkeep(Pair):
    """What is counted, thrown away, taken out, brought back and handed over."""

    @initialize(lives=st.lists(values.lives, min_size=4, max_size=4))
    def create(self, lives: Any) -> None:
        self.exported: dict[str, Any] = {}
        self.created: list[str] = []
        for session_id, life in zip("abcd", lives, strict=True):
            self.both("create_session", session_id, "cli")
            self.live(session_id, life)

    def live(self, session_id: str, life: Any) -> None:
        if "title" in life:
            self.both("set_session_title", session_id, life["title"])
        if "turns" in life:
            self.both("append_messages_batch", session_id, life["turns"])
        if "report" in life:
            self.both("update_token_counts", session_id, **life["report"])
        if "peer" in life:
            self.both("record_gateway_session_peer", session_id, **life["peer"])
        if life.get("reason") is not None:
            self.both("end_session", session_id, life["reason"])
        if "flag" in life:
            self.both(f"set_session_{life['flag']}", session_id, True)

    @rule(seconds=st.sampled_from([0.25, 60.0, values.DAY + 1.0, 3.0 * values.DAY]))
    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)

    # Sessions

    @rule(session_id=values.sessions, source=values.sources, options=fields, life=values.lives)
    def begin_session(self, session_id: str, source: str, options: Any, life: Any) -> None:
        options.pop("title", None)
        self.both("create_session", session_id, source, **options)
        self.live(session_id, life)

    @rule(
        session_id=values.sessions,
        parent=values.sessions,
        delegates=values.switches,
        life=values.lives,
    )
    def descend(self, session_id: str, parent: str, delegates: bool, life: Any) -> None:
        marker = {"_delegate_from": parent} if delegates else None
        options = {"model_config": marker, "parent_session_id": parent}
        self.both("create_session", session_id, "tui", **options)
        self.live(session_id, life)

    @rule(session_id=values.sessions, life=values.lives)
    def go_on(self, session_id: str, life: Any) -> None:
        self.live(session_id, life)

    @rule(session_id=values.sessions, parent=values.sessions)
    def compress(self, session_id: str, parent: str) -> None:
        self.both("end_session", parent, "compression")
        self.both("create_session", session_id, "cli", parent_session_id=parent)

    @rule(life=values.lives)
    def begin_another(self, life: Any) -> None:
        """Begin a session that nothing else names, so that bulk deletion finds some."""
        session_id = f"n{len(self.created)}"
        self.created.append(session_id)
        self.both("create_session", session_id, "tui")
        self.live(session_id, life)

    @rule(session_id=values.sessions, row_id=message_values.row_ids)
    def undo(self, session_id: str, row_id: int) -> None:
        self.both("rewind_to_message", session_id, row_id)

    # Usage

    @rule(session_id=values.looked_up, report=values.reports)
    def use(self, session_id: Any, report: Any) -> None:
        self.both("update_token_counts", session_id, **report)

    @rule(session_id=values.looked_up, task=values.tasks, report=values.auxiliary)
    def use_beside(self, session_id: Any, task: str, report: Any) -> None:
        self.both("record_auxiliary_usage", session_id, task, **report)

    @rule(
        reports=st.lists(st.tuples(values.sessions, values.reports), min_size=1, max_size=4),
        then=st.none() | values.sessions,
    )
    def queue(self, reports: Any, then: Any) -> None:
        for session_id, report in reports:
            self.both("queue_token_counts", session_id, **report)
        if then is not None:
            self.both("delete_session", then)
        self.both("flush_token_counts")

    @rule(session_id=values.looked_up, provider=values.models, mode=values.models)
    def switch(self, session_id: Any, provider: Any, mode: Any) -> None:
        route = {"provider": provider, "base_url": provider, "billing_mode": mode}
        self.both("update_session_billing_route", session_id, **route)

    @rule(session_id=values.looked_up, options=values.statistics)
    def account(self, session_id: Any, options: Any) -> None:
        self.both("search_messages", "needle", sort="newest")
        self.both("get_recent_session_model_route", session_id)
        self.both("usage_statistics", **options)

    # Retention

    @rule(session_id=values.looked_up, expected=values.expected)
    def delete(self, session_id: Any, expected: Any) -> None:
        self.both("get_session_delete_targets", session_id)
        self.both("delete_session", session_id, expected_delete_ids=expected)

    @rule(session_ids=values.several, empties=values.switches)
    def delete_some(self, session_ids: Any, empties: bool) -> None:
        self.both("delete_sessions", session_ids)
        for session_id in session_ids if empties else ():
            self.both("delete_session_if_empty", session_id)

    @rule(pinned=values.switches)
    def delete_empty(self, pinned: bool) -> None:
        found = self.both("count_empty_sessions", include_pinned=pinned)
        assert self.both("delete_empty_sessions", include_pinned=pinned) == found
        self.both("prune_empty_ghost_sessions", include_pinned=pinned)

    @rule(age=values.ages, filters=values.few_filters(), archives=values.switches)
    def prune(self, age: Any, filters: Any, archives: bool) -> None:
        """Do what a dry run announces, to no session more and no session less."""
        if archives:
            filters = {"archived": False, **filters}
        found = self.both("list_prune_candidates", age, **filters)
        self.both("count_open_prune_matches", age, **filters)
        operation = "archive_sessions" if archives else "prune_sessions"
        done = self.both(operation, age, **filters)
        if not archives or filters["archived"] is not None:
            assert done == found if "Error" in found else int(done) == found.count("'last_active':")

    @rule(days=values.ages, pinned=values.switches, deletes=values.switches)
    def keep_house(self, days: Any, pinned: bool, deletes: bool) -> None:
        self.both("archive_stale_sessions", days, exclude_pinned=pinned)
        self.both("maybe_auto_archive", days)
        if deletes:
            self.both("maybe_auto_prune_and_vacuum", days, vacuum=False)

    # Export and import

    @rule(session_id=values.looked_up)
    def take_out(self, session_id: Any) -> None:
        self.both("export_session_lineage", session_id)
        if self.both("export_session", session_id).startswith("{"):
            session = self.runner.run(self.stores[0].export_session(session_id))
            self.exported[session_id] = session

    @rule(deletes=values.switches)
    def bring_back(self, deletes: bool) -> None:
        """Import what was exported; where it is gone it comes back as it was."""
        if deletes:
            self.both("delete_sessions", list(self.exported))
        self.both("import_sessions", list(self.exported.values()))

    @rule(entries=values.imports)
    def bring(self, entries: Any) -> None:
        self.both("import_sessions", entries)

    @rule(session_id=values.sessions, profile=st.sampled_from([None, "work", ""]))
    def carry_over(self, session_id: str, profile: Any) -> None:
        """Move a session out and in again, as between the profiles of a gateway."""
        self.both("count_messages_all", session_id)
        moved = self.runner.run(self.stores[0].export_session_for_move(session_id))
        self.both("delete_moved_session", session_id)
        if moved is not None:
            self.both("import_moved_session", moved, profile_name=profile)

    # Gateway

    @rule(session_id=values.looked_up, peer=values.peers, lineage=values.switches)
    def talk(self, session_id: Any, peer: Any, lineage: bool) -> None:
        record = {**peer, "include_compression_ancestors": lineage}
        self.both("record_gateway_session_peer", session_id, **record)
        self.both("find_latest_gateway_session_for_peer", **peer)
        self.both("latest_conversation_boundary", peer["session_key"], peer["source"])
        self.both("list_gateway_sessions", active_only=lineage)

    @rule(orphan=values.looked_up, donor=values.looked_up, days=values.ages)
    def tidy(self, orphan: Any, donor: Any, days: Any) -> None:
        self.both("find_orphaned_gateway_sessions", max_gap_s=days)
        self.both("adopt_orphaned_gateway_session", orphan, donor)
        self.both("promote_to_session_reset", orphan, "idle")
        self.both("unarchive_recoverable_session", donor)
        self.both("list_never_active_keyed_sessions", older_than_days=days)
        self.both("prune_never_active_keyed_sessions", older_than_days=days)

    @rule(scope=values.scopes, routes=values.routes, key=values.keys, entry=values.routed)
    def route(self, scope: str, routes: Any, key: Any, entry: str) -> None:
        self.both("replace_gateway_routing_entries", routes, scope=scope)
        self.both("save_gateway_routing_entry", key, entry, scope=scope)
        self.both("load_gateway_routing_entries", scope=scope)

    @rule(scope=values.scopes, keys=st.lists(values.keys, max_size=3), session_id=values.looked_up)
    def unroute(self, scope: str, keys: Any, session_id: Any) -> None:
        self.both("gateway_routing_entry_for_session", session_id)
        self.both("delete_gateway_routing_entries", keys, scope=scope)
        self.both("list_gateway_routing_rows")

    @rule(session_id=values.looked_up, platform=values.platforms, claims=values.switches)
    def hand_over(self, session_id: Any, platform: Any, claims: bool) -> None:
        self.both("request_handoff", session_id, platform)
        self.both("list_pending_handoffs")
        if claims:
            self.both("claim_pending_handoffs", 1)
        else:
            self.both("claim_handoff", session_id)

    @rule(session_id=values.looked_up, states=values.states, error=values.texts)
    def finish_hand_over(self, session_id: Any, states: Any, error: Any) -> None:
        self.both("fail_handoff", session_id, error, only_states=states)
        self.both("complete_handoff", session_id, only_states=states)
        self.both("get_handoff_state", session_id)

    @rule(error=values.texts, source=values.platforms, key=values.keys)
    def restart(self, error: Any, source: Any, key: Any) -> None:
        self.both("reclaim_stale_running_handoffs", error)
        self.both("increment_hygiene_failure_streak", key)
        self.both("find_session_by_origin", platform=source, chat_id="c")

    @invariant()
    def every_session_is_equal(self) -> None:
        options = {"include_children": True, "include_archived": True, "include_hidden": True}
        self.both("list_sessions_rich", limit=None, **options)

    def teardown(self) -> None:
        self.both("export_all")
        sqlite, postgres = (self.runner.run(s.database.read(everything)) for s in self.stores)
        differing = [pair for pair in zip_longest(sqlite, postgres) if pair[0] != pair[1]]
        assert not differing, [
            pair if None in pair else sorted(set(pair[0]) ^ set(pair[1])) for pair in differing
        ]


@pytest.fixture
def make_machine(
    make_location: Callable[..., str], postgres_server: PostgresServer, clock: Any
) -> Iterator[Callable[[], Upkeep]]:
    with two_stores(make_location, postgres_server) as (runner, stores):
        yield lambda: Upkeep(runner, stores, clock)


def test_both_databases_agree(make_machine: Callable[[], Upkeep]) -> None:
    run(make_machine, EXAMPLES)
