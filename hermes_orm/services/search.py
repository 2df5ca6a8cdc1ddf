"""Search of messages: arguments are checked and the query is read before the unit runs."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable

from hermes_orm.database import Database
from hermes_orm.repositories.search.request import SearchRequest
from hermes_orm.repositories.search.routes import first_route
from hermes_orm.repositories.search.search import SearchRepository
from hermes_orm.rows import SearchHit
from hermes_orm.services.indexing import replace_damaged

LOGGED_CHARACTERS = 200

logger = logging.getLogger("hermes_orm.search")


async def search_messages(
    database: Database,
    query: str | None,
    source_filter: Iterable[str] | None = None,
    exclude_sources: Iterable[str] | None = None,
    role_filter: Iterable[str] | None = None,
    limit: int | None = 20,
    offset: int = 0,
    sort: str | None = None,
    include_inactive: bool = False,
    fields: Collection[str] | None = None,
) -> list[SearchHit]:
    """Return the messages that a query finds, the most relevant first.

    A query is words, "quoted phrases", pre* and AND, OR, NOT in upper case; case and accents of
    words don't count. What no word matches is searched inside of words, and so is CJK text, but
    not in tool messages nor in cron and subagent sessions, unless a filter names them.

    The filters keep hits by the source of their session and by role; an empty `source_filter` keeps
    none. `sort` is "newest", "oldest" or by relevance, which inside of words is "newest". No or a
    negative `limit`: all hits. Undone messages are found with `include_inactive` only. `fields`
    names the keys that are wanted. The snippet marks matches by >>> and <<<; the context is the
    message between its neighbours in the session. Raises TypeError and ValueError for arguments.
    """
    request = SearchRequest.of(
        query,
        source_filter=source_filter,
        exclude_sources=exclude_sources,
        role_filter=role_filter,
        limit=limit,
        offset=offset,
        sort=sort,
        include_inactive=include_inactive,
        fields=fields,
    )
    started = time.perf_counter()
    route, count = "unknown", "err"
    try:
        hits, route = await _hits(database, request)
        count = str(len(hits))
    finally:
        milliseconds = (time.perf_counter() - started) * 1000
        if milliseconds >= database.settings.sessions.search_slow_ms:
            shown = (query or "")[:LOGGED_CHARACTERS]
            logger.info(
                "search: route=%s %.1f ms rows=%s query=%r", route, milliseconds, count, shown
            )
    return hits


async def _hits(database: Database, request: SearchRequest) -> tuple[list[SearchHit], str]:
    database.check_open()
    route = first_route(request, database.dialect.search)
    if route is None or not request.limit:
        return [], "empty"
    found = await database.read(
        lambda tx: SearchRepository(tx).hits(request, route),
        scope="snapshot" if request.offset else "statement",
    )
    if database.dialect.indexing.damaged is not None:
        await replace_damaged(database)
    return found
