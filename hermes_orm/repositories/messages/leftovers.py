"""What a hasty migration has left to later: indexes of messages, and their durable ids."""

from __future__ import annotations

from typing import Final

from sqlalchemy import BigInteger, Index, bindparam, func, inspect, select
from sqlalchemy.schema import CreateIndex

from hermes_orm.dialects import Prepared
from hermes_orm.dialects.uids import UID_MARK, give_uids
from hermes_orm.models import Message
from hermes_orm.repositories.base import Repository
from hermes_orm.repositories.meta import GET_META, SET_META

STEP_ROWS: Final = 2_000
INDEXES: Final = {str(index.name): index for index in Message.metadata.tables["messages"].indexes}

_AFTER = bindparam("after_id", type_=BigInteger)
_ROWS = bindparam("rows", type_=BigInteger)
_NEXT = select(Message.id).where(Message.id > _AFTER).order_by(Message.id).limit(_ROWS)
LAST_OF_STEP = Prepared(select(func.max(_NEXT.subquery().c.id)))
GIVE = Prepared(
    give_uids(Message.id > _AFTER, Message.id <= bindparam("last_id", type_=BigInteger))
)


class LeftoverRepository(Repository):
    """Steps that may be repeated from any place, and by several processes at once."""

    def are_complete(self) -> bool:
        """Whether nothing is known to be left."""
        return bool(self.tx.scalar(GET_META, {"key": UID_MARK}) == "1")

    def missing_indexes(self) -> list[Index]:
        """Return the indexes of messages that do not exist."""
        present = {row["name"] for row in inspect(self.tx.connection).get_indexes("messages")}
        return [INDEXES[name] for name in sorted(INDEXES.keys() - present)]

    def create(self, index: Index) -> None:
        """Create an index; writers wait meanwhile."""
        self.tx.connection.execute(CreateIndex(index, if_not_exists=True))

    def give_uids(self, after_id: int) -> int | None:
        """Give ids to the next messages; return the last of them, None when that was all."""
        step = {"after_id": after_id, "rows": STEP_ROWS}
        last_id: int | None = self.tx.scalar(LAST_OF_STEP, step)
        if last_id is None:
            self.tx.run(SET_META, {"key": UID_MARK, "value": "1"})
        else:
            self.tx.run(GIVE, {"after_id": after_id, "last_id": last_id})
        return last_id
