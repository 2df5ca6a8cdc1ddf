"""Gateway operations that depend on the owner of the store, check arguments, or delete sessions."""

from __future__ import annotations

from collections.abc import Iterable

from hermes_orm.arguments import finite_number, natural_number, real_number
from hermes_orm.database import Database
from hermes_orm.dialects.expressions import text_list
from hermes_orm.gateway_rows import GatewaySessionRow, OrphanedSession
from hermes_orm.repositories.gateway.adoption import AdoptionRepository
from hermes_orm.repositories.gateway.never_active import (
    NeverActiveRepository,
    Pruned,
    never_active_filter,
)
from hermes_orm.repositories.gateway.orphans import DEFAULT_GAP_SECONDS, OrphanFinder
from hermes_orm.repositories.gateway.peers import PeerRepository
from hermes_orm.repositories.gateway.reaping import HEARTBEATS, PINS, ReapingRepository
from hermes_orm.services.deletion import Directory
from hermes_orm.services.session_files import directory, remove_files
from hermes_orm.session_text import lookup_key


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
    created. Without a key nothing happens. Raises ValueError without a source.
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


async def find_orphaned_gateway_sessions(
    database: Database, *, max_gap_s: float | None = None
) -> list[OrphanedSession]:
    """Return the sessions with messages that have no key, by start, each with its likely donor.

    With a parent that is the parent, if it has a key. Without one it is the only session with a key
    of the same source, profile and user that was active about when the orphan started:
    `max_gap_s` (900) seconds before or after. A donor that several claim is nobody's. Tools,
    branches and delegates are no orphans.
    """
    gap = DEFAULT_GAP_SECONDS if max_gap_s is None else natural_number(max_gap_s, "max_gap_s")
    return await database.read(lambda tx: OrphanFinder(tx).find(gap, database.own_profile))


async def adopt_orphaned_gateway_session(database: Database, orphan_id: str, donor_id: str) -> bool:
    """Give an orphan the key of its donor and what it lacks of the peer; end the donor.

    The donor becomes the parent of an orphan without one; its end by compression or a reset stays
    what it is. False, with nothing changed, when source, profile or user differ, when the donor has
    no key, the orphan has one or is an ancestor, or when a child of the donor has the key.
    """
    return await database.write(
        lambda tx: AdoptionRepository(tx).adopt(orphan_id, donor_id, database.own_profile)
    )


async def sweep_orphaned_sessions(
    database: Database,
    *,
    max_idle_seconds: float,
    sources: Iterable[str] = ("tui", "desktop", "subagent"),
    exclude_ids: Iterable[str] = (),
    exclude_pinned: bool = False,
    heartbeat_staleness_seconds: float | None = None,
    heartbeat_ownership_grace_seconds: float | None = None,
    respect_gateway_heartbeats: bool = True,
) -> list[str]:
    """End the open sessions of some sources that nobody runs any more; return their ids, by start.

    They started, and showed their last sign of life, more than `max_idle_seconds` ago; nobody holds
    a turn lease or a compression lock; and no backend is alive that started at most the grace after
    them. A backend is alive for twice `max_idle_seconds`, or the staleness, after its heartbeat;
    the grace is as long unless given. Messages are kept. Never pass messaging platforms.
    """
    idle = finite_number(max_idle_seconds, "max_idle_seconds")
    listed = [key for source in sources if source and (key := lookup_key(source)) is not None]
    if idle <= 0 or not listed:
        return []
    excluded = (key for given in exclude_ids if (key := lookup_key(given)) is not None)
    staleness, grace = heartbeat_staleness_seconds, heartbeat_ownership_grace_seconds
    alive = staleness if staleness is not None and staleness > 0 else 2 * idle
    params = {
        "max_idle": idle,
        "sources": text_list(listed),
        "excluded": text_list(excluded),
        "staleness": real_number(alive, "heartbeat_staleness_seconds"),
        "grace": real_number(
            grace if grace is not None and grace >= 0 else alive,
            "heartbeat_ownership_grace_seconds",
        ),
    }
    wanted = {PINS: exclude_pinned, HEARTBEATS: respect_gateway_heartbeats}
    names = frozenset(name for name, is_wanted in wanted.items() if is_wanted)
    return await database.write(lambda tx: ReapingRepository(tx).sweep(names, params))


async def prune_never_active_keyed_sessions(
    database: Database, *, older_than_days: float, sessions_dir: Directory = None
) -> tuple[int, int, int]:
    """Delete the sessions that `list_never_active_keyed_sessions` lists, with their files.

    Return how many were deleted, how many routing entries that named them were deleted with them,
    and how many sessions were skipped because somebody holds a turn lease or compression lock.
    """
    folder = directory(database, sessions_dir)
    wanted = never_active_filter(older_than_days)
    await database.settle()
    pruned: Pruned = await database.write(lambda tx: NeverActiveRepository(tx).prune(wanted))
    database.tombstones.bury(pruned.deleted)
    await remove_files(database, folder, pruned.deleted)
    return len(pruned.deleted), pruned.routing_deleted, pruned.skipped
