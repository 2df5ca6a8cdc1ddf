"""Sessions that lost the key of their peer, and whose conversation they go on with."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

from sqlalchemy import ClauseElement, and_, bindparam, func, select
from sqlalchemy.orm import aliased

from hermes_orm.dialects import Prepared
from hermes_orm.dialects.expressions import has_key
from hermes_orm.dialects.recency import time_or_null
from hermes_orm.gateway_rows import OrphanedSession
from hermes_orm.models import Message, Session, SessionRecency
from hermes_orm.repositories.base import Repository
from hermes_orm.repositories.gateway.rows import activity, is_blank, is_keyed
from hermes_orm.repositories.lineage.lineage import TOOL_SOURCE
from hermes_orm.repositories.sessions.markers import BRANCHED_FROM, DELEGATE_FROM, config_marker

DEFAULT_GAP_SECONDS: Final = 900.0

AMBIGUOUS: Final = "ambiguous"
NO_PARENT: Final = "its parent has no key, another source or another profile"
SEVERAL: Final = f"{AMBIGUOUS}: several sessions with a key were active when it started"
CONTESTED: Final = f"{AMBIGUOUS}: another session without key goes on from the same one"


class _Orphan(NamedTuple):
    id: str
    source: str
    messages: int
    started_at: float
    last_active: float
    parent_id: str | None
    user_id: str | None
    profile: str | None
    parent_key: str | None
    parent_source: str | None
    parent_profile: str | None


class _Donor(NamedTuple):
    id: str
    source: str
    session_key: str
    last_active: float
    user_id: str | None
    profile: str | None


def _orphans() -> ClauseElement:
    orphan, parent = aliased(Session), aliased(Session)
    started_at = func.coalesce(time_or_null(orphan.started_at), activity(orphan))
    messages = (
        select(func.count()).where(Message.session_id == orphan.id).correlate(orphan)
    ).scalar_subquery()
    # With LIMIT, because PostgreSQL would read all messages for an EXISTS here and hash them.
    a_message = select(Message.id).where(Message.session_id == orphan.id).limit(1)
    return (
        select(
            orphan.id,
            orphan.source,
            messages,
            started_at,
            activity(orphan),
            orphan.parent_session_id,
            orphan.user_id,
            orphan.profile_name,
            parent.session_key,
            parent.source,
            parent.profile_name,
        )
        .outerjoin(parent, parent.id == orphan.parent_session_id)
        .where(
            is_blank(orphan.session_key),
            orphan.source != TOOL_SOURCE,
            a_message.scalar_subquery().is_not(None),
            *(config_marker(orphan, key).is_(None) for key in (BRANCHED_FROM, DELEGATE_FROM)),
        )
        .order_by(started_at, orphan.id)
    )


def _donors() -> ClauseElement:
    active = SessionRecency.last_active
    return (
        select(
            Session.id,
            Session.source,
            Session.session_key,
            active,
            Session.user_id,
            Session.profile_name,
        )
        .join_from(SessionRecency, Session, has_key(Session.id, SessionRecency.session_id))
        .where(and_(active >= bindparam("first"), active <= bindparam("last")), is_keyed(Session))
        .order_by(active)
    )


ORPHANS = Prepared(_orphans)
DONORS = Prepared(_donors)


class _Donors:
    """Sessions with a key by source and profile, in the order of their activity."""

    def __init__(self, donors: Iterable[_Donor], owner: str | None) -> None:
        self._owner = owner
        self._groups: dict[tuple[str, str | None], list[_Donor]] = defaultdict(list)
        for donor in donors:
            self._groups[donor.source, donor.profile or owner].append(donor)
        self._times = {
            group: [donor.last_active for donor in donors] for group, donors in self._groups.items()
        }

    def near(self, orphan: _Orphan, gap: float) -> list[_Donor]:
        """Return at most two that were active about when an orphan started, and that fit."""
        group = orphan.source, orphan.profile or self._owner
        times, start = self._times.get(group, []), orphan.started_at
        window = slice(
            bisect_left(times, start - gap),
            min(bisect_right(times, start + gap), bisect_left(times, orphan.last_active)),
        )
        fitting = (
            donor
            for donor in self._groups.get(group, [])[window]
            if not donor.user_id or not orphan.user_id or donor.user_id == orphan.user_id
        )
        return list(islice(fitting, 2))


class OrphanFinder(Repository):
    """Sessions without a key among those that have one."""

    def find(self, gap: float, owner: str | None) -> list[OrphanedSession]:
        """Return a record per orphan, by start; see `find_orphaned_gateway_sessions`."""
        orphans = [_Orphan(*row) for row in self.tx.all(ORPHANS)]
        donors = _Donors(self._near([o for o in orphans if o.parent_id is None], gap), owner)
        records = [_record(orphan, donors, gap, owner) for orphan in orphans]
        claims = Counter(record["donor_id"] for record in records if record["adoptable"])
        for record in records:
            if record["adoptable"] and claims[record["donor_id"]] > 1:
                record |= {"adoptable": False, "reason": CONTESTED}
        return records

    def _near(self, orphans: Sequence[_Orphan], gap: float) -> list[_Donor]:
        if not orphans:
            return []
        window = {
            "first": orphans[0].started_at - gap,
            "last": orphans[-1].started_at + gap,
        }
        return [_Donor(*row) for row in self.tx.all(DONORS, window)]


def _record(orphan: _Orphan, donors: _Donors, gap: float, owner: str | None) -> OrphanedSession:
    record: OrphanedSession = {
        "orphan_id": orphan.id,
        "source": orphan.source,
        "message_count": orphan.messages,
        "started_at": orphan.started_at,
        "last_active": orphan.last_active,
        "donor_id": None,
        "session_key": None,
        "evidence": "",
        "adoptable": False,
        "reason": "",
    }
    return {**record, **_finding(orphan, donors, gap, owner)}  # type: ignore[typeddict-item]


def _finding(orphan: _Orphan, donors: _Donors, gap: float, owner: str | None) -> Mapping[str, Any]:
    """Return what is known about the donor of an orphan."""
    if orphan.parent_id is not None:
        ours = (orphan.source, orphan.profile or owner)
        if not orphan.parent_key or ours != (orphan.parent_source, orphan.parent_profile or owner):
            return {"reason": NO_PARENT}
        return _donated("lineage", orphan.parent_id, orphan.parent_key)
    found = donors.near(orphan, gap)
    if len(found) == 1:
        return _donated("contiguity", found[0].id, found[0].session_key)
    nobody = f"no session with a key was active within {gap:g} s of its start"
    return {"reason": SEVERAL if found else nobody}


def _donated(evidence: str, donor_id: str, session_key: str) -> Mapping[str, Any]:
    return {
        "evidence": evidence,
        "donor_id": donor_id,
        "session_key": session_key,
        "adoptable": True,
    }
