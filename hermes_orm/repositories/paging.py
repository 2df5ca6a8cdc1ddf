"""Which rows of an ordered result an operation returns."""

from __future__ import annotations

from typing import Final

from hermes_orm.arguments import whole_number

UNLIMITED: Final = 2**62
"""Stands for no limit; as a sum with an offset it still fits a column."""


def row_limit(limit: int | None) -> int:
    """Return how many rows are wanted; None or a negative limit: all of them."""
    wanted = UNLIMITED if limit is None else whole_number(limit, "limit")
    return wanted if 0 <= wanted < UNLIMITED else UNLIMITED


def row_offset(offset: int | None) -> int:
    """Return how many rows are left out before them; None or a negative offset: none."""
    return min(max(whole_number(offset or 0, "offset"), 0), UNLIMITED)
