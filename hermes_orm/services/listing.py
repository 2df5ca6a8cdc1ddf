"""Lists of sessions: the arguments become a filter and a page before the unit runs."""

from __future__ import annotations

from collections.abc import Iterable

from hermes_orm.database import Database
from hermes_orm.repositories.listing.listing import ListingRepository, page_of
from hermes_orm.repositories.sessions.filters import session_filter
from hermes_orm.rows import RichSessionRow


async def list_sessions_rich(
    database: Database,
    source: str | None = None,
    sources: Iterable[str] | None = None,
    exclude_sources: Iterable[str] | None = None,
    cwd_prefix: str | None = None,
    limit: int | None = 20,
    offset: int = 0,
    include_children: bool = False,
    min_message_count: int = 0,
    project_compression_tips: bool = True,
    order_by_last_active: bool = False,
    include_archived: bool = False,
    archived_only: bool = False,
    id_query: str | None = None,
    search_query: str | None = None,
    compact_rows: bool = False,
    include_pinned: bool = False,
    session_key: str | None = None,
    include_hidden: bool = False,
) -> list[RichSessionRow]:
    """Return a page of sessions, the latest started or the last active first.

    Rows have the keys of `get_session` and `last_active`, `preview`, `unread`; compact ones no
    prompt. A compressed conversation is shown as its tip, with `_lineage_root_id`. All filters
    apply to the listed row itself; the queries to every session of its conversation. Pinned
    sessions that pass come after the page, whatever the limit. No or a negative limit: all rows.
    """
    wanted = session_filter(
        source=source,
        sources=sources,
        exclude_sources=exclude_sources,
        cwd_prefix=cwd_prefix,
        session_key=session_key,
        min_message_count=min_message_count,
        include_archived=include_archived,
        archived_only=archived_only,
        include_hidden=include_hidden,
        include_children=include_children,
        id_query=id_query,
        search_query=search_query,
    )
    page = page_of(
        wanted,
        limit=limit,
        offset=offset,
        is_compact=bool(compact_rows),
        is_projected=bool(project_compression_tips) and not include_children,
        includes_pinned=bool(include_pinned),
    )
    await database.settle()
    if order_by_last_active:
        return await database.read(lambda tx: ListingRepository(tx).by_activity(page))
    return await database.read(lambda tx: ListingRepository(tx).by_start(page), scope="statement")
