"""Counts of sessions and messages."""

from __future__ import annotations

from sqlalchemy import BigInteger, bindparam, func, literal_column, select

from hermes_orm.dialects import Prepared
from hermes_orm.models import Message, Session
from hermes_orm.repositories.base import Repository
from hermes_orm.session_text import lookup_key

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


class CountRepository(Repository):
    """How many rows there are."""

    def message_count(self, session_id: str | None = None) -> int:
        """Return the number of message rows, inactive ones included: of one session, or of all."""
        if not session_id:
            return int(self.tx.scalar(COUNT_MESSAGES))
        key = lookup_key(session_id)
        return 0 if key is None else int(self.tx.scalar(COUNT_OWN_MESSAGES, {"session_id": key}))

    def session_count_ge(self, n: int = 1) -> bool:
        """Return whether there are at least `n` sessions, archived ones included."""
        return n <= 0 or self.tx.first(NTH_SESSION, {"skip": n - 1}) is not None
