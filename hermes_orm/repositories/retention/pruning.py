"""Which sessions a filter matches, and archiving them."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Final, Unpack

from sqlalchemy import case, func, select

from hermes_orm.dialects import Prepared
from hermes_orm.dialects.expressions import bound_texts, has_key_of, text_list
from hermes_orm.models import Session
from hermes_orm.repositories.base import Repository
from hermes_orm.repositories.retention.conditions import conditions, last_active
from hermes_orm.repositories.retention.deletion import chunks, matching
from hermes_orm.repositories.retention.filters import PruneFilters, prune_filter
from hermes_orm.repositories.sessions.filters import SessionFilter
from hermes_orm.repositories.sessions.flags import marking
from hermes_orm.repositories.sessions.rows import with_times
from hermes_orm.rows import PruneCandidate

_KEYS: Final = tuple(PruneCandidate.__annotations__)

_GIVEN: Final = has_key_of(Session.id, bound_texts("ids"))
_BY_ITSELF: Final = case((Session.archived == 0, 1), else_=Session.auto_archived)
"""What a user has archived is not brought back by new activity."""

ARCHIVE = Prepared(partial(marking, _GIVEN, archived=1))
AUTO_ARCHIVE = Prepared(partial(marking, _GIVEN, archived=1, auto_archived=_BY_ITSELF))


@lru_cache
def candidates(names: frozenset[str]) -> Prepared:
    """Return the statement that selects the sessions of a filter, the longest idle first."""
    shown = [
        last_active().label(key) if key == "last_active" else getattr(Session, key) for key in _KEYS
    ]
    order = (shown[_KEYS.index("last_active")], Session.started_at, Session.id)
    return Prepared(select(*shown).where(*conditions(names)).order_by(*order))


@lru_cache
def count_matching(names: frozenset[str]) -> Prepared:
    """Return the statement that counts the sessions of a filter."""
    return Prepared(select(func.count()).select_from(Session).where(*conditions(names)))


class PruningRepository(Repository):
    """Sessions that filters match."""

    def list_prune_candidates(
        self,
        older_than_days: float | None = None,
        source: str | None = None,
        **filters: Unpack[PruneFilters],
    ) -> list[PruneCandidate]:
        """Return the ended sessions that `prune_sessions` would delete, the longest idle first.

        `last_active` is the time of the latest message, or the start. Without arguments all ended
        sessions that are not pinned. Errors as for `prune_sessions`.
        """
        wanted = prune_filter("ended", older_than_days, source, filters)
        rows = self.tx.all(candidates(wanted.names), wanted.params)
        found = [dict(zip(_KEYS, row, strict=True)) for row in rows]
        return [with_times(row) for row in found]  # type: ignore[misc]

    def count_open_prune_matches(
        self,
        older_than_days: float | None = None,
        source: str | None = None,
        **filters: Unpack[PruneFilters],
    ) -> int:
        """Return how many sessions match but are still open; they are not pruned."""
        wanted = prune_filter("open", older_than_days, source, filters)
        return int(self.tx.scalar(count_matching(wanted.names), wanted.params))

    def archive(self, wanted: SessionFilter, *, by_itself: bool = False) -> int:
        """Archive the conversations of the sessions that a filter matches; return how many match.

        What is archived `by_itself` comes back with new activity.
        """
        found = [row[0] for row in self.tx.all(matching(wanted.names), wanted.params)]
        for chunk in chunks(found):
            self.tx.all(AUTO_ARCHIVE if by_itself else ARCHIVE, {"ids": text_list(chunk)})
        return len(found)
