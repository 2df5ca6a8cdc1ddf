"""Gateway operations that depend on which profile owns the store."""

from __future__ import annotations

from hermes_orm.database import Database
from hermes_orm.gateway_rows import GatewaySessionRow
from hermes_orm.repositories.gateway.peers import PeerRepository


async def record_gateway_session_peer(
    database: Database,
    session_id: str,
    *,
    source: str,
    user_id: str | None = None,
    session_key: str | None = None,
    chat_id: str | None = None,
    chat_type: str | None = None,
    thread_id: str | None = None,
    display_name: str | None = None,
    origin_json: str | None = None,
    include_compression_ancestors: bool = False,
    transport_profile: str | None = None,
) -> None:
    """Write with whom a session talks, open or ended; create it if it does not exist.

    Source, key, user and chat are overwritten, by None, too; the last three texts only if given.
    With `include_compression_ancestors` what the session carries on gets the same, and nothing is
    created. Without a key nothing happens.
    """
    if not session_id or not session_key:
        return
    peer = {
        "source": source,
        "user_id": user_id,
        "session_key": session_key,
        "chat_id": chat_id,
        "chat_type": chat_type,
        "thread_id": thread_id,
        "display_name": display_name,
        "origin_json": origin_json,
        "transport_profile": transport_profile,
    }
    await database.write(
        lambda tx: PeerRepository(tx).record(
            session_id,
            peer,
            database.own_profile,
            with_ancestors=bool(include_compression_ancestors),
        ),
        scope="statement",
    )


async def find_latest_gateway_session_for_peer(
    database: Database,
    *,
    source: str,
    user_id: str | None = None,
    session_key: str | None = None,
    chat_id: str | None = None,
    chat_type: str | None = None,
    thread_id: str | None = None,
) -> GatewaySessionRow | None:
    """Return the session in which a peer's conversation goes on; None when it begins anew.

    It is open, or only a runtime left it, or it was handed over; and no session of the peer was
    reset after its last sign of life. One with messages comes first, then the last active. Sessions
    of the key are looked for first; then those of the same chat, with messages, of the profile that
    owns the store (or that the key names).
    """
    if not session_key:
        return None
    peer = {
        "source": source,
        "user_id": user_id,
        "session_key": session_key,
        "chat_id": chat_id,
        "chat_type": chat_type,
        "thread_id": thread_id,
    }
    return await database.read(lambda tx: PeerRepository(tx).latest(peer, database.own_profile))
