"""Key/value settings of the database."""

from __future__ import annotations

from sqlalchemy import bindparam, select

from hermes_orm.dialects import Prepared
from hermes_orm.dialects.expressions import upsert
from hermes_orm.models import StateMeta
from hermes_orm.repositories.base import Repository

GET_META = Prepared(select(StateMeta.value).where(StateMeta.key == bindparam("key")))
SET_META = Prepared(
    upsert(StateMeta, {"key": bindparam("key"), "value": bindparam("value")}, update=["value"])
)


class MetaRepository(Repository):
    """Rows of `state_meta`."""

    def get_meta(self, key: str) -> str | None:
        """Return the value under `key`; None when there is none, or it is NULL."""
        value: str | None = self.tx.scalar(GET_META, {"key": key})
        return value

    def set_meta(self, key: str, value: str | None) -> None:
        """Store `value` under `key`."""
        self.tx.run(SET_META, {"key": key, "value": value})
