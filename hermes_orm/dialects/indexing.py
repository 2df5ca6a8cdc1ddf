"""How the indexes of messages are filled step by step, and what they need now and then."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple, Self

from sqlalchemy import Connection, delete, func, insert, or_, select

from hermes_orm.dialects.search import SearchIndex
from hermes_orm.models import Message, StateMeta

if TYPE_CHECKING:
    from hermes_orm.dialects.base import Transaction


class Rebuild(NamedTuple):
    """The keys of `state_meta` while an index is rebuilt in steps.

    A message is still to be indexed when `progress` < its id <= `high_water`.
    """

    high_water: str
    progress: str


REBUILD: Final = Rebuild("fts_rebuild_high_water", "fts_rebuild_progress")
CJK_REBUILD: Final = Rebuild("fts_cjk_rebuild_high_water", "fts_cjk_rebuild_progress")


OPEN_END: Final = 2**62
"""High-water mark of an index into which steps put what is appended, whatever its id will be."""


class Gap(NamedTuple):
    """What a rebuild has still to index: the messages with ids in (`after_id`, `last_id`]."""

    after_id: int
    last_id: int

    @property
    def is_open(self) -> bool:
        """Whether appended messages come to it, too."""
        return self.last_id == OPEN_END

    @classmethod
    def of(cls, values: Mapping[str, str | None], rebuild: Rebuild) -> Self | None:
        """Return the gap that the keys describe; None when nothing is pending."""
        last_id = _number(values.get(rebuild.high_water))
        return cls(_number(values.get(rebuild.progress)), last_id) if last_id > 0 else None


def _number(text: str | None) -> int:
    try:
        return max(0, int(text or 0))
    except ValueError:
        return 0


class Indexing(ABC):
    """The indexes of messages: filling, rebuilding and tidying them; statements of one unit."""

    stays_settled: ClassVar[bool] = False
    """Whether indexes that are complete stay so while a store is open, whoever writes."""
    is_settled = False
    """Whether a search has found them complete, so that the next need not ask."""
    defers = False
    """Whether appends leave them to later steps."""
    damaged: SearchIndex | None = None
    """What a search could not use; it has still to be repaired."""
    was_repaired = False
    """Whether that happened once; further damage is left to writes and the next opening."""

    def has(self, tx: Transaction, rebuild: Rebuild) -> bool:
        """Whether the indexes of a rebuild can be filled here."""
        return rebuild is REBUILD

    @abstractmethod
    def fill(self, tx: Transaction, rebuild: Rebuild, after_id: int, last_id: int) -> None:
        """Index the messages with ids in (`after_id`, `last_id`] that are not indexed yet."""

    @abstractmethod
    def complete(self, tx: Transaction, rebuild: Rebuild, high_water: int) -> bool:
        """Index what the steps left out; False when there may be more."""

    @abstractmethod
    def optimize(self, tx: Transaction) -> int:
        """Tidy the indexes; return how many."""

    @abstractmethod
    def rebuild(self, tx: Transaction) -> int:
        """Build the indexes anew in one go; return how many. No rebuild in steps is left then.

        The unit is alone and its scope `maintenance`.
        """

    @abstractmethod
    def is_improvable(self, tx: Transaction) -> bool:
        """Whether `optimize_fts_storage` has something to do beside a rebuild in steps."""

    def reshape(self, tx: Transaction) -> bool:
        """Bring the indexes into their newest form, to be filled by steps; False: impossible."""
        return True

    def is_outdated(self, tx: Transaction) -> bool:
        """Whether another version of this code would have indexed the same messages otherwise."""
        return False

    def renew(self, tx: Transaction) -> None:
        """Throw away what is outdated; steps index it anew."""
        return

    def defer(self, tx: Transaction) -> None:
        """Leave what is appended from now on to later steps, where that is the setting."""
        return

    def replace(self, tx: Transaction, index: SearchIndex) -> None:
        """Put an empty index in the place of a damaged one, to be filled by steps."""
        return

    def discard(self, tx: Transaction, rows: int) -> bool:
        """Delete up to `rows` rows of what `reshape` put aside; whether there is more."""
        return False

    @abstractmethod
    def unsettled(self, tx: Transaction) -> str | None:
        """Return the reason why the newest form is not reached; None when it is."""

    @abstractmethod
    def settle(self, tx: Transaction) -> None:
        """Record that the newest form is reached."""


def defer_rebuild(connection: Connection, rebuild: Rebuild = REBUILD) -> None:
    """Say that all messages of now are still to be indexed, by later steps."""
    clear_rebuild(connection, rebuild)
    last_id = connection.scalar(select(func.max(Message.id)))
    if last_id is not None:
        values = {rebuild.high_water: str(last_id), rebuild.progress: "0"}
        rows = [{"key": key, "value": value} for key, value in values.items()]
        connection.execute(insert(StateMeta), rows)


def clear_rebuild(connection: Connection, *rebuilds: Rebuild) -> None:
    """Say that no rebuild in steps is under way."""
    keys = [key for rebuild in rebuilds for key in rebuild]
    connection.execute(delete(StateMeta).where(or_(*(StateMeta.key == key for key in keys))))
