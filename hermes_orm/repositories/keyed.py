"""Rows as dicts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any


class Keyed:
    """Makes the dict of a row that has these columns, in this order, and maybe further ones.

    A copy of a dict that has the keys is filled: `dict(zip(keys, row))`, which grows its table key
    by key, takes twice as long for the 58 keys of a session.
    """

    def __init__(self, keys: Iterable[str]) -> None:
        self.keys = tuple(keys)
        self._blank: dict[str, Any] = dict.fromkeys(self.keys)

    def __call__(self, row: Sequence[Any]) -> dict[str, Any]:
        """Return a new dict; raise ValueError when the row is too short."""
        if len(row) < len(self.keys):
            raise ValueError(f"a row of {len(row)} columns does not hold {len(self.keys)} keys")
        keyed = self._blank.copy()
        keyed.update(zip(self.keys, row, strict=False))
        return keyed
