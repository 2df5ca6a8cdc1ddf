"""A read-only store: every operation that writes refuses by its own name, the others answer."""

import inspect
import sqlite3
from collections.abc import Callable
from typing import Any

import pytest

from hermes_orm import ReadOnlyStoreError, SessionDB

ARGUMENTS: dict[str, Any] = {
    "source": "cli",
    "session_id": "s",
    "limit": 5,
    "messages": [{"role": "user", "content": "text"}],
    "patch": {"k": 1},
    "cwd_to_root": {"/w": "/w"},
    "session_row": {},
    "row_id": 1,
    "compacted_messages": [],
    "cooldown_until": 1.0,
    "snapshot": {},
    "streak": 1,
    "count": 1,
    "pid": 1,
    "started_at": 1.0,
    "max_age_seconds": 1.0,
    "max_idle_seconds": 1.0,
    "older_than_days": 1,
    "entries": {},
}
BY_NAME = {"set_auto_title": {"source": "llm"}, "set_session_title_source": {"source": "llm"}}
CHANGING = (
    "acquire_session_",
    "adopt_",
    "append_",
    "apply_",
    "archive_and_",
    "archive_sessions",
    "archive_stale_",
    "backfill_",
    "bind_",
    "claim_",
    "clear_",
    "complete_",
    "create_",
    "delete_",
    "disable_",
    "drop_",
    "enable_",
    "end_",
    "ensure_",
    "fail_handoff",
    "finalize_",
    "import_",
    "import_sessions",
    "increment_",
    "insert_",
    "mark_",
    "patch_",
    "promote_",
    "prune_",
    "publish_",
    "purge_",
    "queue_",
    "reclaim_",
    "record_",
    "recover_",
    "refresh_session_",
    "register_",
    "rekey_",
    "relabel_",
    "release_completion_",
    "release_runtime_",
    "release_session_",
    "renew_",
    "reopen_",
    "replace_",
    "request_",
    "reset_",
    "restore_compression_",
    "restore_rewound",
    "restore_undelivered_",
    "rewind_",
    "save_",
    "set_",
    "sever_",
    "sweep_",
    "sweep_orphaned_",
    "touch_",
    "try_acquire_session_",
    "unarchive_",
    "update_",
    "vacuum",
)
"""How the names of operations begin that write."""
NO_OPERATION = {"close", "sanitize_title", "session_unread", "_is_compression_child_row"}


def operations() -> dict[str, Any]:
    return {
        name: method
        for name, method in inspect.getmembers_static(SessionDB)
        if inspect.iscoroutinefunction(method)
        and not name.startswith("__")
        and name not in NO_OPERATION
    }


def arguments(name: str, method: Any) -> dict[str, Any]:
    given = {**ARGUMENTS, **BY_NAME.get(name, {})}
    return {
        parameter.name: given.get(parameter.name, "x")
        for parameter in list(inspect.signature(method).parameters.values())[1:]
        if parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD
    }


async def test_writes_refuse_and_reads_answer(db: Any, open_store: Callable[..., Any]) -> None:
    await db.create_session("s", "cli")
    await db.append_message("s", "user", "x marks the spot")
    before = await db.get_session("s"), await db.get_messages("s")
    reader = open_store(read_only=True)
    for name, method in operations().items():
        call = getattr(reader, name)(**arguments(name, method))
        if name.startswith(CHANGING):
            with pytest.raises(
                ReadOnlyStoreError, match=f"^{name}: the store is read-only"
            ) as refusal:
                await call
            assert isinstance(refusal.value, PermissionError)
            assert isinstance(refusal.value, sqlite3.OperationalError)
        else:
            await call
    assert (await db.get_session("s"), await db.get_messages("s")) == before
