"""Session rows: find, read, end, reopen."""

from __future__ import annotations

import re
from typing import Final

from sqlalchemy import ClauseElement, Integer, bindparam, func, null, select, union_all, update
from sqlalchemy.orm import aliased

from hermes_orm import clock
from hermes_orm.dialects import Prepared
from hermes_orm.dialects.expressions import ascii_lower
from hermes_orm.models import Session, SystemPrompt
from hermes_orm.repositories.base import Repository
from hermes_orm.repositories.lineage.lineage import is_legacy_reset_child
from hermes_orm.repositories.sessions.end_reasons import RESET_END_REASONS
from hermes_orm.repositories.sessions.generations import GenerationRepository
from hermes_orm.repositories.sessions.markers import RESET_FROM
from hermes_orm.repositories.sessions.rows import session_columns, session_row
from hermes_orm.rows import SessionRow
from hermes_orm.session_text import (
    decode_config,
    encode_config,
    fold_ascii,
    lookup_key,
    session_text,
)

_LETTER: Final = re.compile("[A-Za-z]")
_LAST: Final = "\U0010ffff"

GET_SESSION = Prepared(
    select(*session_columns())
    .outerjoin(SystemPrompt, SystemPrompt.hash == Session.system_prompt_hash)
    .where(Session.id == bindparam("session_id"))
)
END = Prepared(
    update(Session)
    .where(Session.id == bindparam("session_id"), Session.ended_at.is_(None))
    .values(ended_at=bindparam("now"), end_reason=bindparam("reason"))
    .returning(Session.source, Session.session_key)
)
LOCK_ENDED = Prepared(
    select(Session.end_reason)
    .where(Session.id == bindparam("session_id"), Session.ended_at.is_not(None))
    .with_for_update(key_share=True)
)
REOPEN = Prepared(
    update(Session)
    .where(Session.id == bindparam("session_id"))
    .values(ended_at=null(), end_reason=null())
)
STORE_CONFIG = Prepared(
    update(Session)
    .where(Session.id == bindparam("session_id"))
    .values(model_config=bindparam("config"))
)


def _reset_children() -> ClauseElement:
    child, parent = aliased(Session), aliased(Session)
    return (
        select(child.id, child.model_config)
        .join_from(child, parent, parent.id == child.parent_session_id)
        .where(parent.id == bindparam("session_id"), is_legacy_reset_child(child, parent))
        .order_by(child.id)
        .with_for_update(key_share=True, of=child)
    )


def _resolve() -> ClauseElement:
    named = select(Session.id).where(Session.id == bindparam("session_id"))
    other = aliased(Session)
    beginning = func.substr(other.id, 1, bindparam("length", type_=Integer))
    begun = (
        select(other.id)
        .where(
            ~named.exists(),
            other.id >= bindparam("first"),
            other.id <= bindparam("last"),
            ascii_lower(beginning) == bindparam("folded"),
        )
        .limit(2)
        .subquery()
    )
    return union_all(named, select(begun.c.id))


RESET_CHILDREN = Prepared(_reset_children)
RESOLVE = Prepared(_resolve)


class SessionRepository(Repository):
    """Rows of `sessions`: identity and end."""

    def get_session(self, session_id: str) -> SessionRow | None:
        """Return the session, or None when there is no such id."""
        key = lookup_key(session_id)
        return None if key is None else session_row(self.tx.first(GET_SESSION, {"session_id": key}))

    def resolve_session_id(self, session_id_or_prefix: str) -> str | None:
        """Return the id, or else the one id that begins so, A to Z in either case.

        None when there is none, or more than one. Raises TypeError for None.
        """
        if session_id_or_prefix is None:
            raise TypeError("session_id_or_prefix is None; pass an id or the beginning of one")
        key = lookup_key(session_id_or_prefix)
        if key is None:
            return None
        before_letters = _LETTER.split(key, maxsplit=1)[0]  # a range of the index
        prefix = {
            "session_id": key,
            "first": before_letters,
            "last": before_letters + _LAST,
            "folded": fold_ascii(key),
            "length": len(key),
        }
        rows = self.tx.all(RESOLVE, prefix)
        return rows[0][0] if len(rows) == 1 else None

    def end_session(self, session_id: str, end_reason: str | None) -> None:
        """End the session, unless it has ended: the first reason wins.

        A reset of a gateway conversation also advances the generation of its peer.
        """
        key, reason = lookup_key(session_id), session_text(end_reason)
        if key is None:
            return
        end = {"session_id": key, "now": clock.now(), "reason": reason}
        peer = self.tx.first(END, end)
        if peer is not None and reason in RESET_END_REASONS:
            GenerationRepository(self.tx).advance(*peer)

    def reopen_session(self, session_id: str) -> None:
        """Open an ended session again.

        Children that count as resets only by its end reason get the marker `_reset_from` first.
        """
        key = lookup_key(session_id)
        if key is None:
            return
        this = {"session_id": key}
        ended = self.tx.first(LOCK_ENDED, this)
        if ended is None:
            return
        if ended[0] in RESET_END_REASONS:
            self.tx.run_many(STORE_CONFIG, self._marked_children(key))
        self.tx.run(REOPEN, this)

    def _marked_children(self, key: str) -> list[dict[str, str]]:
        """Return the children that only the end reason makes resets, with their new config."""
        marked = []
        for child, stored in self.tx.all(RESET_CHILDREN, {"session_id": key}):
            config = decode_config(stored) or {}
            if config.get(RESET_FROM) is None:
                text = encode_config({**config, RESET_FROM: key}, compact=True)
                marked.append({"session_id": child, "config": text})
        return marked
