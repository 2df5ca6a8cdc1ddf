"""What repositories and plans have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from hermes_orm.database import Dialect, Transaction


class _Owned:
    """Remembers, per public method, the class that defines it: the facade builds that class."""

    _owners: ClassVar[dict[Callable[..., Any], type[Any]]]

    def __init_subclass__(cls) -> None:
        for member in vars(cls).values():
            if callable(member):
                cls._owners[member] = cls

    @classmethod
    def owner_of(cls, method: Callable[..., Any]) -> type[Any]:
        """Return the class in whose body `method` was defined."""
        return cls._owners[method]


class Repository(_Owned):
    """Operations on one aggregate, inside one transaction; the work may run twice."""

    _owners: ClassVar[dict[Callable[..., Any], type[Any]]] = {}

    def __init__(self, tx: Transaction) -> None:
        self.tx = tx


class Plans(_Owned):
    """Operations that encode their arguments first; each returns the unit to run."""

    _owners: ClassVar[dict[Callable[..., Any], type[Any]]] = {}

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
