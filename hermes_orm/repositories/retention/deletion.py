"""Deleting sessions, with everything that is theirs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence, Set
from functools import lru_cache
from typing import Final

from sqlalchemy import ClauseElement, delete, null, or_, select, update

from hermes_orm.dialects import Prepared
from hermes_orm.dialects.base import Row
from hermes_orm.dialects.expressions import bound_texts, has_key_of, text_list
from hermes_orm.models import (
    CompressionLock,
    Message,
    Session,
    SessionModelUsage,
    SessionTurnLease,
)
from hermes_orm.repositories.base import Repository
from hermes_orm.repositories.retention.conditions import conditions
from hermes_orm.repositories.sessions.filters import SessionFilter
from hermes_orm.repositories.sessions.markers import DELEGATE_FROM, config_marker
from hermes_orm.repositories.sessions.prompts import PromptRepository
from hermes_orm.session_text import lookup_key

CHUNK: Final = 1_000
"""Sessions that are deleted or archived by one set of statements."""


def chunks(ids: Iterable[str]) -> Iterator[Sequence[str]]:
    """Yield the ids in ascending order, as all who lock several sessions take them."""
    ordered = sorted(set(ids))
    for start in range(0, len(ordered), CHUNK):
        yield ordered[start : start + CHUNK]


def _delegates() -> ClauseElement:
    """Select the delegates of a set of sessions: by parent, or by a marker that names one.

    No index leads to a marker. The text is looked through first, since decoding it is dear.
    """
    marker = config_marker(Session, DELEGATE_FROM)
    return select(Session.id).where(
        Session.model_config.contains(DELEGATE_FROM, autoescape=True),
        marker.is_not(None),
        or_(
            Session.parent_session_id.in_(bound_texts("ids")),
            marker.in_(bound_texts("ids")),
        ),
    )


def _all_delegates() -> ClauseElement:
    marker = config_marker(Session, DELEGATE_FROM)
    return select(Session.id, Session.parent_session_id, marker).where(
        Session.model_config.contains(DELEGATE_FROM, autoescape=True), marker.is_not(None)
    )


_GIVEN: Final = has_key_of(Session.id, bound_texts("ids"))

SCANS: Final = 4
"""How many generations of delegates are looked for one by one; each reads all of `sessions`."""

KNOWN = Prepared(select(Session.id).where(_GIVEN))
DELEGATES = Prepared(_delegates)
ALL_DELEGATES = Prepared(_all_delegates)
LOCK = Prepared(
    select(Session.id, Session.system_prompt_hash, Session.tool_names)
    .where(_GIVEN)
    .order_by(Session.id)
    .with_for_update()
)
# SQLite collects the ids where a table has triggers, and deletes in the order of these: FTS5 writes
# out what it has gathered whenever a row comes after one with a higher id.
DELETE = tuple(
    Prepared(statement)
    for statement in (
        *(
            delete(model).where(has_key_of(owner, bound_texts("ids")))
            for model, owner in (
                (Message, Message.session_id),
                (SessionModelUsage, SessionModelUsage.session_id),
                (CompressionLock, CompressionLock.session_id),
                (SessionTurnLease, SessionTurnLease.conversation_id),
            )
        ),
        update(Session)
        .where(
            has_key_of(Session.parent_session_id, bound_texts("ids")),
            Session.id.not_in(bound_texts("ids")),
        )
        .values(parent_session_id=null()),
        delete(Session).where(_GIVEN),
    )
)
"""What deletes locked sessions, and makes roots of the children that survive them."""


@lru_cache
def still_matching(names: frozenset[str]) -> Prepared:
    """Return the statement that selects those of some sessions that a filter matches."""
    return Prepared(lambda: select(Session.id).where(_GIVEN, *conditions(names)))


@lru_cache
def matching(names: frozenset[str]) -> Prepared:
    """Return the statement that selects the ids of the sessions that a filter matches."""
    return Prepared(lambda: select(Session.id).where(*conditions(names)))


class DeletionRepository(Repository):
    """Sessions that go, with their messages, usage, locks and leases, and unused prompts."""

    def get_session_delete_targets(self, session_id: str) -> list[str]:
        """Return the ids of what `delete_session` deletes: the session, then its delegates.

        These are the runs of subagents for it, and for them. An unknown session has none.
        """
        known = self.known({session_id})
        return [*known, *sorted(self.delegates(known))]

    def known(self, ids: Iterable[str]) -> set[str]:
        """Return those of the ids that are ids of sessions."""
        keys = [key for given in ids if (key := lookup_key(given)) is not None]
        return {row[0] for row in self.tx.all(KNOWN, {"ids": text_list(keys)})}

    def delegates(self, ids: Set[str]) -> set[str]:
        """Return the delegates of sessions, their delegates, and so on; none of the sessions."""
        found = set(ids)
        latest = found
        for _ in range(SCANS):
            rows = self.tx.all(DELEGATES, {"ids": text_list(latest)})
            latest = {row[0] for row in rows} - found
            if not latest:
                return found - ids
            found |= latest
        return (found | self._descendants(latest)) - ids

    def _descendants(self, ids: Set[str]) -> set[str]:
        """Return sessions with their delegates of any depth, which one reading finds."""
        delegates: defaultdict[str, set[str]] = defaultdict(set)
        for session_id, parent, marker in self.tx.all(ALL_DELEGATES):
            delegates[parent].add(session_id)
            delegates[marker].add(session_id)
        found, latest = set(ids), set(ids)
        while latest:
            latest = set().union(*(delegates[key] for key in latest)) - found
            found |= latest
        return found

    def delete_with_delegates(
        self, ids: Iterable[str], *, expected: Set[object] | None = None
    ) -> set[str]:
        """Delete sessions and their delegates; return the ids of what is gone.

        That is nothing when other sessions are `expected` to go.
        """
        known = self.known(ids)
        targets = known | self.delegates(known)
        return set() if expected is not None and expected != targets else self.delete(targets)

    def delete_matching(self, wanted: SessionFilter) -> set[str]:
        """Delete the sessions that a filter matches; return their ids."""
        found = self.tx.all(matching(wanted.names), wanted.params)
        return self.delete((row[0] for row in found), wanted)

    def delete(self, ids: Iterable[str], wanted: SessionFilter | None = None) -> set[str]:
        """Delete sessions, those that a filter still matches once they are locked."""
        gone: set[str] = set()
        for chunk in chunks(ids):
            rows = self._locked(chunk, wanted)
            if rows:
                self._delete(rows)
                gone.update(row[0] for row in rows)
        return gone

    def _locked(self, ids: Sequence[str], wanted: SessionFilter | None) -> Sequence[Row]:
        given = {"ids": text_list(ids)}
        rows = self.tx.all(LOCK, given)
        if wanted is None:
            return rows
        matched = self.tx.all(still_matching(wanted.names), {**wanted.params, **given})
        kept = {row[0] for row in matched}
        return [row for row in rows if row[0] in kept]

    def _delete(self, rows: Sequence[Row]) -> None:
        given = {"ids": text_list(row[0] for row in rows)}
        self.tx.run_together(DELETE, given)
        prompts = {key for row in rows for key in row[1:] if key}
        PromptRepository(self.tx).sweep(*sorted(prompts))
