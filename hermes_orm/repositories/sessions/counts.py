"""Counts of sessions and messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

from sqlalchemy import BigInteger, bindparam, func, literal_column, select

from hermes_orm.arguments import whole_number
from hermes_orm.codec import plain_text
from hermes_orm.dialects import Prepared
from hermes_orm.models import Message, Session
from hermes_orm.repositories.base import Repository
from hermes_orm.repositories.paging import UNLIMITED
from hermes_orm.repositories.sessions.filters import conditions, empty_sessions, session_filter
from hermes_orm.session_text import lookup_key

DEFAULT_SOURCE = "cli"
"""What a session without a source counts as."""

COUNT_MESSAGES = Prepared(select(func.count()).select_from(Message))
COUNT_OWN_MESSAGES = Prepared(
    select(func.count()).select_from(Message).where(Message.session_id == bindparam("session_id"))
)
NTH_SESSION = Prepared(
    select(literal_column("1"))
    .select_from(Session)
    .limit(1)
    .offset(bindparam("skip", type_=BigInteger))
)


@lru_cache
def count_sessions(names: frozenset[str]) -> Prepared:
    """Return the statement that counts the sessions of a filter."""
    return Prepared(select(func.count()).select_from(Session).where(*conditions(names)))


@lru_cache
def count_by_source(names: frozenset[str]) -> Prepared:
    """Return the statement that counts the sessions of a filter for each source."""
    return Prepared(
        select(Session.source, func.count()).where(*conditions(names)).group_by(Session.source)
    )


class CountRepository(Repository):
    """How many rows there are."""

    def session_count(
        self,
        source: str | None = None,
        sources: Iterable[str] | None = None,
        cwd_prefix: str | None = None,
        min_message_count: int = 0,
        include_archived: bool = False,
        archived_only: bool = False,
        exclude_children: bool = False,
        exclude_sources: Iterable[str] | None = None,
        include_hidden: bool = True,
    ) -> int:
        """Return the number of sessions that pass the filters of `list_sessions_rich`.

        Unlike there, hidden sessions count unless `include_hidden=False`, and children count unless
        `exclude_children=True`.
        """
        wanted = session_filter(
            source=source,
            sources=sources,
            cwd_prefix=cwd_prefix,
            min_message_count=min_message_count,
            include_archived=include_archived,
            archived_only=archived_only,
            include_children=not exclude_children,
            exclude_sources=exclude_sources,
            include_hidden=include_hidden,
        )
        return int(self.tx.scalar(count_sessions(wanted.names), wanted.params))

    def session_count_by_source(
        self,
        *,
        include_archived: bool = False,
        archived_only: bool = False,
        exclude_children: bool = False,
        include_hidden: bool = True,
    ) -> dict[str, int]:
        """Return the number of sessions of each source, the most frequent first."""
        wanted = session_filter(
            include_archived=include_archived,
            archived_only=archived_only,
            include_children=not exclude_children,
            include_hidden=include_hidden,
        )
        counts = Counter[str]()
        for source, count in self.tx.all(count_by_source(wanted.names), wanted.params):
            counts[plain_text(source or DEFAULT_SOURCE)] += count
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))

    def session_count_ge(self, n: int = 1) -> bool:
        """Return whether there are at least `n` sessions, archived ones included."""
        wanted = min(whole_number(n, "n"), UNLIMITED)
        return wanted <= 0 or self.tx.first(NTH_SESSION, {"skip": wanted - 1}) is not None

    def count_empty_sessions(self, *, include_pinned: bool = False) -> int:
        """Return how many sessions `delete_empty_sessions` would delete.

        They are ended, hold no message of any kind, and are neither archived nor pinned;
        `include_pinned=True` counts those, too.
        """
        names = empty_sessions(include_pinned=include_pinned)
        return int(self.tx.scalar(count_sessions(names)))

    def message_count(self, session_id: str | None = None) -> int:
        """Return the number of message rows, inactive ones included: of one session, or of all."""
        if not session_id:
            return int(self.tx.scalar(COUNT_MESSAGES))
        key = lookup_key(session_id)
        return 0 if key is None else int(self.tx.scalar(COUNT_OWN_MESSAGES, {"session_id": key}))
