"""One call per public coroutine, on a store that `seed` has filled: for tests over all operations.

A new operation needs a line here. The call must succeed and, if the operation writes, change
something; what it needs to be there belongs into `seed`.
"""

import inspect
import queue
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

from tests.contract.turns import assistant, tool, user

PEER = {"session_key": "agent:main:telegram:dm:1", "chat_id": "1", "user_id": "u"}
TOPIC = {"chat_id": 1, "thread_id": 7, "user_id": "u", "session_key": "k"}
LATER = 4_000_000_000.0
REPLY = {
    "session_key": PEER["session_key"],
    "platform": "telegram",
    "chat_id": "1",
    "thread_id": None,
    "content": "hi",
}


async def completed(made: Any) -> Any:
    """Return what comes of a call: awaited, read to its end, or entered and left."""
    if inspect.isawaitable(made):
        return await made
    if isinstance(made, AbstractAsyncContextManager):
        async with made as entered:
            return entered
    return [part async for part in made]


@dataclass(frozen=True)
class Sample:
    """A call's arguments; `in_steps` when it commits several times, or not at all by itself."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    in_steps: bool = False


def call(*args: Any, **kwargs: Any) -> Sample:
    """A call that changes everything or nothing."""
    return Sample(args, kwargs)


def steps(*args: Any, **kwargs: Any) -> Sample:
    """A call that commits several times: what it has done by then stays."""
    return Sample(args, kwargs, in_steps=True)


def event(delegation_id: str) -> dict[str, str]:
    """The event of a delegation's end."""
    return {"type": "async_delegation", "delegation_id": delegation_id, "status": "completed"}


async def seed(db: Any) -> None:
    """A conversation `s` with row ids 1 to 7, a chain `root` to `tip`, and what operations need."""
    await db.create_session("s", "cli", model="m", system_prompt="be brief", cwd="/w")
    await db.append_messages_batch("s", [user("hello"), assistant("hi", "c1"), tool("42", "c1")])
    await db.append_message("s", "assistant", "done")
    await db.append_message("s", "user", "needle", platform_message_id="p1")
    await db.append_messages_batch("s", [assistant("found"), user("undone")])
    await db.set_session_title("s", "Title")
    await db.touch_session_activity("s", 1767225600.0, description="at work")
    await db.create_session("root", "telegram", **PEER)
    await db.append_message("root", "user", "start")
    await db.end_session("root", "compression")
    await db.create_session("tip", "telegram", parent_session_id="root")
    await db.append_message("tip", "user", "go on")
    await db.create_session("orphan", "cli")
    await db.append_message("orphan", "user", "lost")
    await db.end_session("orphan", "compression")
    await db.create_session("empty", "cli")
    await db.create_session("old", "cron")
    await db.append_message("old", "user", "long ago")
    await db.end_session("old", "cron_complete")
    await db.create_session("undone", "cli")
    await db.append_messages_batch("undone", [user("a"), assistant("b"), user("c")])
    rows = await db.get_messages("undone")
    await db.rewind_to_message("undone", rows[2]["id"])
    await db.create_session("locked", "cli")
    await db.append_messages_batch("locked", [user("a"), assistant("b"), user("c")])
    await db.try_acquire_compression_lock("locked", "h", 3600)
    await db.try_acquire_session_turn_lease("locked", "h", ttl_seconds=3600)
    await db.record_compression_failure_cooldown("locked", LATER, error="failed")
    for delegation in ("running", "waiting", "claimed"):
        await db.record_delegation_dispatch(delegation, "s", {"goal": "g"})
    for delegation in ("waiting", "claimed"):
        await db.record_delegation_completion(event(delegation), {"summary": "done"})
    await db.claim_completion_delivery("claimed", "c")
    for obligation in ("owed", "sent", "failed"):
        await db.record_obligation(obligation_id=obligation, **{**REPLY, "content": obligation})
    await db.mark_attempting(("sent", 0))
    await db.mark_attempting(("failed", 0))
    await db.mark_failed(("failed", 1), "lost")
    await db.record_crash_left_reply(obligation_id="left", **REPLY, since=0.0)
    await db.create_session("lost", "telegram")
    await db.append_message("lost", "user", "who am I?")
    await db.create_session("unused", "telegram", session_key="agent:main:telegram:dm:2")
    await db.create_session("put_away", "telegram")
    await db.end_session("put_away", "agent_close")
    await db.set_session_archived("put_away", True)
    await db.save_gateway_routing_entry("routed", '{"session_id": "s"}')
    await db.set_meta("k", "v")
    for session_id in ("asking", "handed"):
        await db.create_session(session_id, "cli")
        await db.request_handoff(session_id, "telegram")
    await db.claim_handoff("handed")
    await db.register_backend_heartbeat(backend_id="b", pid=1, started_at=1, last_heartbeat=1)
    await db.increment_hygiene_failure_streak("k")
    await db.enable_telegram_topic_mode(chat_id=1, user_id="u")
    await db.bind_telegram_topic(**TOPIC, session_id="s")
    crossed = {**TOPIC, "thread_id": 9, "session_key": "agent:work:telegram:dm:2"}
    await db.create_session(
        "crossed",
        "telegram",
        session_key=crossed["session_key"],
        profile_name="default",
        parent_session_id="root",
    )
    await db.bind_telegram_topic(**crossed, session_id="crossed")


SAMPLES: dict[str, Sample] = {
    # Sessions
    "create_session": call("new", "cli", system_prompt="new", parent_session_id="s"),
    "ensure_session": call("new", model="m"),
    "get_session": call("s"),
    "resolve_session_id": call("s"),
    "end_session": call("tip", "session_reset"),
    "reopen_session": call("old"),
    "session_count": call(),
    "session_count_by_source": call(),
    "session_count_ge": call(n=1),
    "count_empty_sessions": call(),
    "message_count": call(),
    "update_system_prompt": call("s", "another"),
    "update_session_meta": call("s", '{"k": 1}', "other"),
    "update_session_model": call("s", "other"),
    "update_session_runtime_lock": call("s", model="other"),
    "update_session_billing_route": call("s", provider="p", base_url="u"),
    "patch_session_model_config": call("s", {"k": 1}),
    "get_session_model_config_value": call("s", "k"),
    "update_session_cwd": call("s", "/other"),
    "backfill_repo_roots": call({"/w": "/w"}),
    "distinct_session_cwds": call(),
    "set_session_title": call("tip", "Another"),
    "set_auto_title": call("tip", "Another", source="llm"),
    "set_auto_title_if_empty": call("tip", "Another"),
    "set_session_title_source": call("s", "llm"),
    "get_session_title": call("s"),
    "get_session_title_source": call("s"),
    "get_session_by_title": call("Title"),
    "resolve_session_by_title": call("Title"),
    "get_next_title_in_lineage": call("Title"),
    "set_session_archived": call("tip", True),
    "set_session_pinned": call("tip", True),
    "set_session_hidden": call("tip", True),
    "set_session_read": call("s"),
    "touch_session_activity": call("s", 1767225700.0),
    "clear_session_activity_labels": call("s"),
    "get_session_activity": call("s"),
    # Chains and lists
    "get_compression_tip": call("root"),
    "resolve_resume_session_id": call("root"),
    "get_compression_lineage": call("root"),
    "get_conversation_root": call("tip"),
    "find_live_compression_child": call("root"),
    "_is_compression_child_row": call({"id": "tip", "parent_session_id": "root"}),
    "reopen_orphaned_compression_session": call("orphan"),
    "finalize_orphaned_compression_sessions": call(),
    "list_sessions_rich": call(order_by_last_active=True),
    "get_session_rich_row": call("s"),
    "search_sessions": call(),
    "search_sessions_by_id": call("s"),
    "list_skill_scaffolded_sessions": call(),
    "get_first_assistant_text": call("s"),
    # Messages
    "append_message": call("s", "user", "one more"),
    "append_messages_batch": call("s", [user("x"), assistant("y", "c2"), tool("z", "c2")]),
    "replace_messages": call("s", [user("x"), assistant("y")]),
    "clear_messages": call("s"),
    "set_latest_user_api_content": call("s", "undone", "for the model"),
    "rewind_to_message": call("s", 5),
    "restore_rewound": call("undone", 1),
    "get_messages": call("s"),
    "get_messages_as_conversation": call("s"),
    "get_resume_conversations": call("tip"),
    "get_ancestor_display_prefix": call("tip"),
    "get_resume_message_count": call("tip"),
    "assert_resume_safe": call("tip"),
    "assert_export_safe": call("s"),
    "get_messages_around": call("s", 5),
    "get_anchored_view": call("s", 5),
    "list_recent_user_messages": call("s"),
    "latest_message_row_id": call("s"),
    "latest_user_message_row_id": call("s"),
    "get_message_role": call("s", 5),
    "has_platform_message_id": call("s", "p1"),
    "has_archived_messages": call("s"),
    "get_active_message_watermark": call("s"),
    "_get_message_storage_state": call(5),
    "has_gateway_input_owner": call("s", "o"),
    "find_gateway_input_owner": call("s", "o"),
    "search_messages": call("needle"),
    # Leases and compression
    "try_acquire_compression_lock": call("s", "h", 3600),
    "refresh_compression_lock": call("locked", "h", 7200),
    "release_compression_lock": call("locked", "h"),
    "get_compression_lock_holder": call("locked"),
    "try_acquire_session_turn_lease": call("s", "h", ttl_seconds=3600),
    "acquire_session_turn_lease": call("s", "h", ttl_seconds=3600),
    "refresh_session_turn_lease": call("locked", "h", ttl_seconds=7200),
    "release_session_turn_lease": call("locked", "h"),
    "_session_turn_lease_key": call("tip"),
    "archive_and_compact": call("locked", [user("summary")], watermark=1, lock_holder="h"),
    "publish_compression_child": call(
        parent_session_id="locked",
        child_session_id="child",
        source="cli",
        messages=[user("summary")],
        compression_lock_holder="h",
        watermark=1,
    ),
    "record_compression_failure_cooldown": call("s", LATER),
    "clear_compression_failure_cooldown": call("locked"),
    "get_compression_failure_cooldown": call("locked"),
    "get_compression_failure_cooldown_row": call("locked"),
    "restore_compression_failure_cooldown_row": call(
        "s", {"session_exists": True, "cooldown_until": LATER, "error": "e"}
    ),
    "get_compression_fallback_streak": call("s"),
    "set_compression_fallback_streak": call("s", 2),
    "get_compression_ineffective_count": call("s"),
    "set_compression_ineffective_count": call("s", 2),
    # Retention
    "get_session_delete_targets": call("s"),
    "delete_session": call("s"),
    "delete_sessions": steps(["s", "old"]),
    "delete_session_if_empty": call("empty"),
    "delete_empty_sessions": steps(),
    "prune_empty_ghost_sessions": steps(),
    "list_prune_candidates": call(older_than_days=None),
    "count_open_prune_matches": call(older_than_days=None),
    "prune_sessions": steps(older_than_days=None, source="cron"),
    "archive_sessions": steps(older_than_days=None, source="cron"),
    "archive_stale_sessions": steps(0),
    "maybe_auto_prune_and_vacuum": steps(),
    "maybe_auto_archive": steps(),
    "vacuum": steps(),
    "logical_size_bytes": call(),
    # Export and import
    "export_session": call("s"),
    "export_session_lineage": call("root"),
    "export_all": call(),
    "iter_export": call(),
    "import_sessions": call(
        [{"id": "imported", "parent_session_id": "s", "messages": [user("x"), assistant("y")]}]
    ),
    # Gateway peers
    "record_gateway_session_peer": call("s", source="telegram", **PEER),
    "find_latest_gateway_session_for_peer": call(source="telegram", **PEER),
    "find_session_by_origin": call(platform="telegram", chat_id="1"),
    "list_gateway_sessions": call(),
    "set_expiry_finalized": call("s"),
    "promote_to_session_reset": call("tip"),
    "latest_conversation_boundary": call(PEER["session_key"], "telegram"),
    # Orphans and routing entries
    "find_orphaned_gateway_sessions": call(),
    "adopt_orphaned_gateway_session": call("lost", "unused"),
    "sweep_orphaned_sessions": call(max_idle_seconds=3600, sources=["desktop"]),
    "unarchive_recoverable_session": call("put_away"),
    "list_never_active_keyed_sessions": call(older_than_days=0),
    "prune_never_active_keyed_sessions": steps(older_than_days=0),
    "save_gateway_routing_entry": call("k", "{}"),
    "replace_gateway_routing_entries": call({"k": "{}", "k2": "{}"}),
    "load_gateway_routing_entries": call(),
    "delete_gateway_routing_entries": call(["routed"]),
    "list_gateway_routing_rows": call(),
    "delete_gateway_routing_rows": call([("", "routed")]),
    "insert_gateway_routing_rows_if_absent": call([("", "k", "{}", 1.0)]),
    "gateway_routing_entry_for_session": call("s"),
    # Usage
    "update_token_counts": call("s", input_tokens=5, model="m"),
    "record_auxiliary_usage": call("s", "title", input_tokens=5, model="m"),
    "queue_token_counts": steps("s", input_tokens=5),
    "flush_token_counts": call(),
    "get_recent_session_model_route": call("s"),
    "usage_statistics": call(by="day"),
    # Gateway
    "handoff_watcher_lock": call(),
    "request_handoff": call("s", "telegram"),
    "get_handoff_state": call("handed"),
    "list_pending_handoffs": call(),
    "has_pending_handoffs": call(),
    "claim_handoff": call("asking"),
    "claim_pending_handoffs": call(),
    "complete_handoff": call("handed", only_states=("running",)),
    "fail_handoff": call("handed", "error"),
    "reclaim_stale_running_handoffs": call("restarted"),
    "register_backend_heartbeat": call(backend_id="a", pid=1, started_at=1, last_heartbeat=5),
    "clear_backend_heartbeat": call("b"),
    "prune_stale_heartbeats": call(max_age_seconds=60),
    "list_backend_heartbeats": call(),
    "increment_hygiene_failure_streak": call("k"),
    "reset_hygiene_failure_streak": call("k"),
    "list_cron_job_runs": call("j"),
    "apply_telegram_topic_migration": call(),
    "enable_telegram_topic_mode": call(chat_id=2, user_id="u"),
    "disable_telegram_topic_mode": call(chat_id=1),
    "is_telegram_topic_mode_enabled": call(chat_id=1, user_id="u"),
    "bind_telegram_topic": call(**TOPIC, session_id="tip"),
    "get_telegram_topic_binding": call(chat_id=1, thread_id=7),
    "list_telegram_topic_bindings_for_chat": call(chat_id=1),
    "get_telegram_topic_binding_by_session": call(session_id="s"),
    "is_telegram_session_linked_to_topic": call(session_id="s"),
    "delete_telegram_topic_binding": call(chat_id=1, thread_id=7),
    "list_unlinked_telegram_sessions_for_user": call(chat_id=1, user_id="u"),
    "find_profile_less_telegram_topic_rows": call(),
    "relabel_telegram_topic_rows": call([{"chat_id": "1", "thread_id": "9"}]),
    "rekey_profile_state": call("default", "work"),
    "purge_profile_state": call("default"),
    "backfill_null_session_profiles": call("work"),
    "find_crossed_profile_sessions": call("default"),
    "relabel_sessions_to_key_profile": call(["crossed"]),
    "sever_crossed_parents": call(["crossed"]),
    "rekey_legacy_main_sessions": call(["root"], "work"),
    "key_profiles_for_chat": call("telegram", 1),
    "export_session_for_move": call("s"),
    "import_moved_session": call(
        {
            "session": {"id": "moved", "source": "cli", "started_at": 1.0},
            "system_prompt": "moved",
            "messages": [{"role": "user", "content": "x", "timestamp": 1.0, "message_uid": "1"}],
        },
        profile_name="work",
    ),
    "delete_moved_session": call("s"),
    "count_messages_all": call("s"),
    # Background delegations
    "record_delegation_dispatch": call("new", "s", {"goal": "g"}),
    "renew_delegation_leases": call(),
    "record_delegation_completion": call(event("running"), {"summary": "done"}),
    "delete_delegation_dispatch": call("running"),
    "recover_abandoned_delegations": steps(),
    "restore_undelivered_completions": steps(queue.Queue()),
    "get_durable_delegation": call("waiting"),
    "claim_completion_delivery": steps("waiting", "c"),
    "claim_event_delivery": steps(event("waiting"), "c"),
    "release_completion_delivery": call("claimed", "c"),
    "drop_completion_delivery": call("claimed", "c"),
    "complete_completion_delivery": call("claimed", "c"),
    "mark_completion_delivered": call("waiting"),
    # Ledger of replies
    "record_obligation": call(obligation_id="new", **REPLY),
    "mark_attempting": call(("owed", 0)),
    "mark_delivered": call(("sent", 1)),
    "mark_failed": call(("sent", 1), "lost"),
    "release_runtime_claim": call(("sent", 1)),
    "record_crash_left_reply": call(
        obligation_id="new", **{**REPLY, "content": "another"}, since=0.0
    ),
    "sweep_recoverable": call(),
    "sweep_failed_for_runtime": call("telegram", 1767225700.0),
    "pending_retries": call(),
    # Search indexes
    "fts_rebuild_status": call(),
    "fts_rebuild_step": steps(),
    "fts_cjk_rebuild_status": call(),
    "fts_cjk_rebuild_step": steps(),
    "fts_optimize_available": call(),
    "optimize_fts": steps(),
    "rebuild_fts": steps(),
    "optimize_fts_storage": steps(),
    # Metadata
    "get_meta": call("k"),
    "set_meta": call("k", "other"),
}
