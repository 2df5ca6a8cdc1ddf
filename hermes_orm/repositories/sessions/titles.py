"""Titles of sessions: unique in the store, with a rank by what gave them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import ClauseElement, ColumnElement, bindparam, case, func, or_, select, update
from sqlalchemy.orm import aliased

from hermes_orm.dialects import Prepared
from hermes_orm.dialects.prepared import Params
from hermes_orm.errors import shown
from hermes_orm.models import Session, SystemPrompt
from hermes_orm.repositories.base import Repository
from hermes_orm.repositories.lineage.ancestry import SESSION_ID, walk
from hermes_orm.repositories.lineage.lineage import continued_parent_id
from hermes_orm.repositories.sessions.rows import session_columns, session_row
from hermes_orm.rows import SessionRow
from hermes_orm.session_text import lookup_key, sanitize_title

DERIVED: Final = "derived"
"""From the beginning of the conversation."""
LLM: Final = "llm"
"""By a model."""
USER: Final = "user"

_REPLACED_BELOW: Final = {DERIVED: 0, LLM: 1, USER: 3}
"""The rank of a stored title below which a new one takes its place; users replace their own."""

_IS_NAMED: Final = Session.id == SESSION_ID
_NEW: Final[dict[str, Any]] = {
    "title": bindparam("new_title"),
    "title_source": bindparam("new_source"),
}


def _rank() -> ColumnElement[int]:
    """Return the rank of the stored title; old rows name no source and count as the user's."""
    source = func.coalesce(Session.title_source, USER)
    return case((Session.title.is_(None), -1), (source == LLM, 1), (source == USER, 2), else_=0)


def _place() -> ClauseElement:
    other = aliased(Session)
    owned = select(other.id).where(other.title == bindparam("new_title"), other.id != SESSION_ID)
    return (
        update(Session)
        .where(_IS_NAMED, _rank() < bindparam("replaced_below"), ~owned.exists())
        .values(_NEW)
    )


def _carries_on() -> ClauseElement:
    earlier = walk("earlier", SESSION_ID, continued_parent_id)
    return select(earlier.c.id).where(earlier.c.id == bindparam("owner_id"))


PLACE = Prepared(_place)
STORE = Prepared(update(Session).where(_IS_NAMED).values(_NEW))
SET_SOURCE = Prepared(
    update(Session)
    .where(_IS_NAMED, Session.title.is_not(None))
    .values(title_source=bindparam("new_source"))
)
LOCK_WITH_OWNER = Prepared(
    select(Session.id, _rank(), Session.source, Session.archived)
    .where(or_(_IS_NAMED, Session.title == bindparam("new_title")))
    .order_by(Session.id)
    .with_for_update(key_share=True)
)
CARRIES_ON = Prepared(_carries_on)
GET_TITLE = Prepared(select(Session.title).where(_IS_NAMED))
GET_SOURCE = Prepared(select(Session.title_source).where(_IS_NAMED, Session.title.is_not(None)))
GET_BY_TITLE = Prepared(
    select(*session_columns())
    .outerjoin(SystemPrompt, SystemPrompt.hash == Session.system_prompt_hash)
    .where(Session.title == bindparam("title"))
)


def new_title(session_id: str, title: str | None, source: str) -> Params:
    """Return the parameters of a title that is to be set; what is left of it may be nothing.

    Raises ValueError for a title that is too long.
    """
    cleaned = sanitize_title(title)
    return {
        "session_id": lookup_key(session_id),
        "new_title": cleaned,
        "new_source": cleaned and source,
        "replaced_below": _REPLACED_BELOW[source],
    }


def known_source(source: str, allowed: Sequence[str], kind: str) -> str:
    """Return the source that equals `source`, which may be a host's enum; or raise ValueError."""
    for known in allowed:
        if source == known:
            return known
    raise ValueError(f"invalid {kind} source {shown(source)}: use one of {', '.join(allowed)}")


class TitleRepository(Repository):
    """Titles of `sessions`."""

    def place(self, new: Params) -> bool:
        """Set a title that nobody has, in one statement.

        False, with nothing changed, when `settle` has to find out what is in its way.
        """
        return self.tx.run(PLACE, new) > 0

    def settle(self, new: Params) -> bool:
        """Set a title, taken from an earlier session of the conversation where one has it.

        False when there is no such session, or its title ranks as high; ValueError when another
        session has the title.
        """
        rows = {row[0]: row[1:] for row in self.tx.all(LOCK_WITH_OWNER, new)}
        own = rows.pop(new["session_id"], None)
        if own is None or own[0] >= new["replaced_below"]:
            return False
        for owner, (_, source, is_archived) in rows.items():  # at most one
            if self.tx.first(CARRIES_ON, {**new, "owner_id": owner}) is None:
                state = ", archived" if is_archived else ""
                raise ValueError(
                    f"Title {new['new_title']!r} is already in use by session {owner!r} "
                    f"(source {source}{state}); choose another, or rename that session"
                )
            self.tx.run(STORE, {"session_id": owner, "new_title": None, "new_source": None})
        self.tx.run(STORE, new)
        return True

    def set_session_title_source(self, session_id: str, source: str) -> bool:
        """Change what counts as the giver of the title; False when the session has none.

        A title that is lowered to `derived` can be replaced automatically. Raises ValueError for
        anything but `derived`, `llm` and `user`.
        """
        known = known_source(source, (DERIVED, LLM, USER), "title")
        change = {"session_id": lookup_key(session_id), "new_source": known}
        return self.tx.run(SET_SOURCE, change) > 0

    def get_session_title(self, session_id: str) -> str | None:
        """Return the session's title, or None."""
        title: str | None = self.tx.scalar(GET_TITLE, {"session_id": lookup_key(session_id)})
        return title

    def get_session_title_source(self, session_id: str) -> str | None:
        """Return what gave the session its title: `derived`, `llm` or `user`.

        None when it has no title, or one from before sources were recorded.
        """
        source: str | None = self.tx.scalar(GET_SOURCE, {"session_id": lookup_key(session_id)})
        return source

    def get_session_by_title(self, title: str) -> SessionRow | None:
        """Return the session with exactly this title, or None."""
        return session_row(self.tx.first(GET_BY_TITLE, {"title": lookup_key(title)}))
