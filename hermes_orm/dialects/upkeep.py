"""Keeping a database's files small."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hermes_orm.dialects.base import Transaction


class Upkeep(ABC):
    """Size of a store, and giving back the room of deleted rows."""

    @abstractmethod
    def size(self, tx: Transaction) -> int:
        """Return the bytes of the store's tables and indexes."""

    @abstractmethod
    def is_worth_vacuuming(self, tx: Transaction) -> bool:
        """Whether a vacuum gives enough room back for what it costs, and has the room it needs."""

    @abstractmethod
    def vacuum(self, tx: Transaction) -> None:
        """Give the room of deleted rows back.

        The unit is alone and its scope `maintenance`: this runs outside of any transaction.
        """
