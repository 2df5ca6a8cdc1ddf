"""Checks of arguments: each returns the value, or raises an error that names the argument.

The error never shows the value, which may be content: a ValueError for what cannot be, a TypeError
for what has another type.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def whole_number(value: Any, name: str) -> int:
    """Return what `int()` makes of an argument."""
    try:
        return int(value)
    except (ValueError, ArithmeticError):
        raise ValueError(f"{name} must be a whole number") from None
    except TypeError:
        raise TypeError(f"{name} must be a whole number, not {type(value).__name__}") from None


def stored_number(value: Any, name: str, *, bits: int = 64) -> int:
    """Return what `int()` makes of an argument that is to be stored in so many bits."""
    number = whole_number(value, name)
    if not -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
        raise ValueError(f"{name} does not fit into {bits} bits")
    return number


def real_number(value: Any, name: str) -> float:
    """Return what `float()` makes of an argument, but for NaN."""
    try:
        number = float(value)
    except (ValueError, ArithmeticError):
        number = math.nan
    except TypeError:
        raise TypeError(f"{name} must be a number, not {type(value).__name__}") from None
    if math.isnan(number):
        raise ValueError(f"{name} must be a number, not NaN or what no float can hold")
    return number


def finite_number(value: object, name: str) -> float:
    """Return a number; texts are none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number, not {type(value).__name__}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError(f"{name} must be a finite number; {number} was given")
    return number


def natural_number(value: object, name: str) -> float:
    """Return a number that is not negative."""
    number = finite_number(value, name)
    if number < 0:
        raise ValueError(f"{name} must not be negative; {number:g} was given")
    return number


def waiting_time(value: Any, name: str) -> float:
    """Return the seconds that a caller waits for others: none where fewer are given."""
    return max(0.0, real_number(value, name))


def truth(value: object, name: str) -> bool:
    """Return True or False, also for 1 or 0."""
    if not isinstance(value, int):
        raise TypeError(f"{name} must be True or False, not {type(value).__name__}")
    if value not in (0, 1):
        raise ValueError(f"{name} must be True or False, and not another number")
    return bool(value)


def mapping(value: Any, name: str) -> Mapping[Any, Any]:
    """Return a mapping."""
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} must be a mapping such as a dict, not {type(value).__name__}")
    return value
