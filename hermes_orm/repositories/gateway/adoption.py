"""Giving a session that lost its key that of the conversation which it goes on with."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from sqlalchemy import ClauseElement, bindparam, case, func, literal, select, update
from sqlalchemy.orm import aliased

from hermes_orm import clock
from hermes_orm.dialects import Prepared
from hermes_orm.dialects.expressions import bound_texts, has_key_of, text_list
from hermes_orm.models import Session
from hermes_orm.models.base import TEXT
from hermes_orm.repositories.base import Repository
from hermes_orm.repositories.gateway.rows import has_reason
from hermes_orm.repositories.sessions.creation import DESCENDS
from hermes_orm.repositories.sessions.end_reasons import (
    BOUNDARY_END_REASONS,
    COMPRESSION,
    SUPERSEDED_BY_REPAIR,
)
from hermes_orm.session_text import lookup_key

_FILLED: Final = ("chat_id", "chat_type", "thread_id", "user_id", "origin_json", "display_name")
"""What an orphan gets of its donor where it has nothing itself."""

_ORPHAN: Final = Session.id == bindparam("orphan_id", type_=TEXT)
_DONOR: Final = Session.id == bindparam("donor_id", type_=TEXT)


class _Party(NamedTuple):
    id: str
    source: str
    session_key: str | None
    user_id: str | None
    profile: str | None


def _adopt() -> ClauseElement:
    donor = aliased(Session)
    given = {
        name: select(getattr(donor, name))
        .where(donor.id == bindparam("donor_id", type_=TEXT))
        .scalar_subquery()
        for name in ("session_key", *_FILLED)
    }
    values: dict[str, Any] = {
        name: func.coalesce(func.nullif(getattr(Session, name), ""), given[name])
        for name in _FILLED
    }
    parent = func.coalesce(Session.parent_session_id, bindparam("donor_id", type_=TEXT))
    values |= {"session_key": given["session_key"], "parent_session_id": parent}
    return update(Session).where(_ORPHAN).values(values)


def _supersede() -> ClauseElement:
    is_kept = has_reason(Session, {COMPRESSION, *BOUNDARY_END_REASONS})
    reason = case((is_kept, Session.end_reason), else_=literal(SUPERSEDED_BY_REPAIR))
    ended_at = func.coalesce(Session.ended_at, bindparam("now"))
    return update(Session).where(_DONOR).values(ended_at=ended_at, end_reason=reason)


LOCK = Prepared(  # FOR UPDATE: it also holds up whoever inserts a child
    select(Session.id, Session.source, Session.session_key, Session.user_id, Session.profile_name)
    .where(has_key_of(Session.id, bound_texts("ids")))
    .order_by(Session.id)
    .with_for_update()
)
OTHER_CHILD = Prepared(
    select(Session.id)
    .where(
        Session.parent_session_id == bindparam("donor_id", type_=TEXT),
        Session.session_key == bindparam("session_key", type_=TEXT),
    )
    .limit(1)
)
ADOPT = Prepared(_adopt)
SUPERSEDE = Prepared(_supersede)


class AdoptionRepository(Repository):
    """A pair of sessions that are to become one conversation."""

    def adopt(self, orphan_id: str, donor_id: str, owner: str | None) -> bool:
        """Do what `adopt_orphaned_gateway_session` says."""
        ids = {"orphan_id": lookup_key(orphan_id), "donor_id": lookup_key(donor_id)}
        known = text_list(key for key in ids.values() if key is not None)
        parties = {row[0]: _Party(*row) for row in self.tx.all(LOCK, {"ids": known})}
        orphan, donor = (parties.get(key or "") for key in ids.values())
        if orphan is None or donor is None or not _fit(orphan, donor, owner):
            return False
        if self.tx.first(DESCENDS, {"id": orphan.id, "parent_session_id": donor.id}):
            return False
        if self.tx.first(OTHER_CHILD, {**ids, "session_key": donor.session_key}):
            return False
        self.tx.run(ADOPT, ids)
        self.tx.run(SUPERSEDE, {**ids, "now": clock.now()})
        return True


def _fit(orphan: _Party, donor: _Party, owner: str | None) -> bool:
    are_of_one_profile = owner is None or (orphan.profile or owner) == (donor.profile or owner)
    are_of_one_user = not orphan.user_id or not donor.user_id or orphan.user_id == donor.user_id
    return (
        bool(donor.session_key)
        and not orphan.session_key
        and orphan.source == donor.source
        and are_of_one_profile
        and are_of_one_user
    )
