"""Key/value settings of the database."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import bindparam, select

from hermes_orm.dialects import Prepared
from hermes_orm.dialects.expressions import upsert
from hermes_orm.models import StateMeta
from hermes_orm.repositories.base import Repository
from hermes_orm.session_text import lookup_key, session_text, stored_key

GET_META = Prepared(select(StateMeta.value).where(StateMeta.key == bindparam("key")))
SET_META = Prepared(
    upsert(StateMeta, {"key": bindparam("key"), "value": bindparam("value")}, update=["value"])
)


def setting(key: str, value: str | float | None) -> Mapping[str, str | None]:
    """Return the row for a setting.

    Raises ValueError for a key that cannot be stored, TypeError for a value that is no scalar.
    """
    if not isinstance(value, str | int | float | None):
        raise TypeError(
            f"a value of state_meta is text, a number or None, not {type(value).__name__}"
        )
    return {"key": stored_key(key, "key"), "value": session_text(value)}


class MetaRepository(Repository):
    """Rows of `state_meta`."""

    def get_meta(self, key: str) -> str | None:
        """Return the value under `key`; None when there is none, or it is NULL."""
        found = lookup_key(key)
        value: str | None = None
        if found is not None:
            value = self.tx.scalar(GET_META, {"key": found})
        return value

    def set_meta(self, row: Mapping[str, str | None]) -> None:
        """Store a setting."""
        self.tx.run(SET_META, row)
