"""Giving ids to the messages of older programs, in steps between which everybody writes."""

from __future__ import annotations

from typing import Final

from sqlalchemy import BigInteger, bindparam, func, select

from hermes_orm.dialects import Prepared
from hermes_orm.dialects.uids import DONE, give_uids
from hermes_orm.models import Message
from hermes_orm.repositories.base import Repository
from hermes_orm.repositories.meta import GET_META, SET_META

STEP_ROWS: Final = 2_000

_AFTER = bindparam("after_id", type_=BigInteger)
_ROWS = bindparam("rows", type_=BigInteger)
_NEXT = select(Message.id).where(Message.id > _AFTER).order_by(Message.id).limit(_ROWS)
LAST_OF_STEP = Prepared(select(func.max(_NEXT.subquery().c.id)))
GIVE = Prepared(
    give_uids(Message.id > _AFTER, Message.id <= bindparam("last_id", type_=BigInteger))
)


class UidRepository(Repository):
    """Ids of messages."""

    def are_complete(self) -> bool:
        """Whether every message is known to have an id."""
        return self.tx.scalar(GET_META, {"key": DONE}) == "1"

    def step(self, after_id: int) -> int | None:
        """Give ids to the next messages; return the last of them, None when that was all.

        It may be repeated from any place, and by several processes at once.
        """
        last_id: int | None = self.tx.scalar(
            LAST_OF_STEP, {"after_id": after_id, "rows": STEP_ROWS}
        )
        if last_id is None:
            self.tx.run(SET_META, {"key": DONE, "value": "1"})
        else:
            self.tx.run(GIVE, {"after_id": after_id, "last_id": last_id})
        return last_id
