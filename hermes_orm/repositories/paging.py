"""Which rows of an ordered result an operation returns."""

from __future__ import annotations

from typing import Any, Final

UNLIMITED: Final = 2**62
"""Stands for no limit; as a sum with an offset it still fits a column."""


def whole_number(value: Any, name: str) -> int:
    """Return what `int()` makes of an argument; raise an error that names the argument."""
    try:
        return int(value)
    except (ValueError, OverflowError):
        raise ValueError(f"{name} must be a whole number") from None
    except TypeError:
        raise TypeError(f"{name} must be a whole number, not {type(value).__name__}") from None


def row_limit(limit: int | None) -> int:
    """Return how many rows are wanted; None or a negative limit: all of them."""
    wanted = UNLIMITED if limit is None else whole_number(limit, "limit")
    return wanted if 0 <= wanted < UNLIMITED else UNLIMITED


def row_offset(offset: int | None) -> int:
    """Return how many rows are left out before them; None or a negative offset: none."""
    return min(max(whole_number(offset or 0, "offset"), 0), UNLIMITED)
