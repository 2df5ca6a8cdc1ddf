"""Sessions that a gateway opened for a peer and that nobody ever used."""

from __future__ import annotations

from collections.abc import Set
from typing import Final, NamedTuple, cast

from sqlalchemy import ClauseElement, case, select

from hermes_orm import clock
from hermes_orm.arguments import natural_number
from hermes_orm.dialects import Prepared
from hermes_orm.dialects.expressions import bound_texts, has_key_of, text_list
from hermes_orm.gateway_rows import NeverActiveSession
from hermes_orm.models import Session
from hermes_orm.repositories.base import Repository
from hermes_orm.repositories.compression.guards import guarded_sessions
from hermes_orm.repositories.gateway.routing import RoutingRepository
from hermes_orm.repositories.retention.conditions import conditions
from hermes_orm.repositories.retention.deletion import DeletionRepository, chunks
from hermes_orm.repositories.retention.filters import DAY
from hermes_orm.repositories.sessions.filters import SessionFilter
from hermes_orm.repositories.sessions.rows import with_times

_KEYS: Final = tuple(NeverActiveSession.__annotations__)
_NEVER_ACTIVE: Final = frozenset(
    {
        "keyed",
        "open",
        "untitled",
        "unused",
        "messageless",
        "unpinned",
        "unarchived",
        "started_before",
    }
)


def _list() -> ClauseElement:
    columns = (getattr(Session, key) for key in _KEYS)
    order = (Session.started_at, Session.id)
    return select(*columns).where(*conditions(_NEVER_ACTIVE)).order_by(*order)


def _candidates() -> ClauseElement:
    is_guarded = case((Session.id.in_(guarded_sessions()), 1), else_=0)
    return select(Session.id, is_guarded).where(*conditions(_NEVER_ACTIVE))


LIST = Prepared(_list)
CANDIDATES = Prepared(_candidates)
LOCK = Prepared(
    select(Session.id)
    .where(has_key_of(Session.id, bound_texts("ids")))
    .order_by(Session.id)
    .with_for_update(skip_locked=True)
)


class Pruned(NamedTuple):
    """What a pruning did."""

    deleted: Set[str]
    routing_deleted: int
    skipped: int


class NeverActiveRepository(Repository):
    """Rows of `sessions` without any trace of use."""

    def list_never_active_keyed_sessions(
        self, *, older_than_days: float
    ) -> list[NeverActiveSession]:
        """Return the open sessions of peers in which nothing ever happened, the oldest first.

        They are untitled, neither pinned nor archived, and started more than `older_than_days` ago.
        Raises TypeError for what is no number, ValueError for one that is negative or not finite.
        """
        rows = self.tx.all(LIST, never_active_filter(older_than_days).params)
        found = (with_times(dict(zip(_KEYS, row, strict=True))) for row in rows)
        return [cast(NeverActiveSession, session) for session in found]

    def prune(self, wanted: SessionFilter) -> Pruned:
        """Delete what the filter matches, and the routing entries that name what is gone.

        Sessions that somebody works on are skipped.
        """
        candidates = self.tx.all(CANDIDATES, wanted.params)
        free = {row[0] for row in candidates if not row[1]}
        sessions, deleted = DeletionRepository(self.tx), set[str]()
        for chunk in chunks(free):
            locked = self.tx.all(LOCK, {"ids": text_list(chunk)})
            deleted |= sessions.delete((row[0] for row in locked), wanted)
        gone = free - sessions.known(free) if free else free
        routes = RoutingRepository(self.tx).delete_naming(gone) if gone else 0
        return Pruned(deleted, routes, len(candidates) - len(free))


def never_active_filter(older_than_days: float) -> SessionFilter:
    """Return the filter for never active sessions that nobody works on."""
    now = clock.now()
    before = now - natural_number(older_than_days, "older_than_days") * DAY
    return SessionFilter(_NEVER_ACTIVE | {"unguarded"}, {"started_before": before, "now": now})
