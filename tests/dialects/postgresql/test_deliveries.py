"""Owners on other hosts: what they have taken is theirs until the server says it is not."""

from collections.abc import Callable
from typing import Any

REPLY = {
    "session_key": "k",
    "platform": "telegram",
    "chat_id": "1",
    "thread_id": None,
    "content": "hi",
}
NOW = "extract(epoch FROM clock_timestamp())"


async def test_reply_of_another_host_is_free_when_its_lease_is_over(db: Any, raw: Any) -> None:
    for name in ("sending", "sent long ago", "failed", "silent", "local"):
        receipt = await db.record_obligation(obligation_id=name, **REPLY)
        if "sen" in name:
            await db.mark_attempting(receipt)
    elsewhere = {
        "sending": "owner_pid = 1",
        "sent long ago": f"owner_pid = 1, lease_expires_at = {NOW} - 1",
        "failed": f"owner_pid = 1, state = 'failed', updated_at = {NOW} - 800",
        "silent": f"owner_pid = 1, updated_at = {NOW} - 901",
    }
    for name, change in elsewhere.items():
        await raw.execute(
            f"UPDATE delivery_obligations SET owner_host = 'elsewhere', {change}"
            " WHERE obligation_id = ?",
            name,
        )
    taken = await db.sweep_recoverable()
    assert {row["obligation_id"] for row in taken} == {"sent long ago", "silent"}
    assert await db.sweep_failed_for_runtime("telegram", 1e11) == []


async def test_delegation_is_leased_by_the_clock_of_the_server(
    db: Any, raw: Any, open_store: Callable[..., Any], clock: Any
) -> None:
    await db.record_delegation_dispatch("d", "s", {})
    lease = f"SELECT lease_expires_at - {NOW} FROM async_delegations"
    ((left,),) = await raw.fetch(lease)
    assert 150 < left <= 180
    clock.advance(1e6)  # of this host alone
    assert await db.recover_abandoned_delegations() == 0
    await raw.execute("UPDATE async_delegations SET lease_expires_at = lease_expires_at - 170")
    await open_store().renew_delegation_leases()
    ((left,),) = await raw.fetch(lease)
    assert 150 < left <= 180
    await db.record_delegation_completion({"delegation_id": "d"}, {})
    assert await raw.fetch("SELECT lease_expires_at FROM async_delegations") == [(None,)]
