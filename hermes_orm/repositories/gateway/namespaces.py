"""Session keys of one profile: a range of texts with a common prefix."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import ColumnElement, Integer, SQLColumnExpression, and_, bindparam, func

from hermes_orm.dialects.prepared import Params
from hermes_orm.models.base import TEXT
from hermes_orm.repositories.sessions.keys import session_key_namespace

AGENT: Final = "agent:"
AGENT_END: Final = "agent;"
"""The first text after all that begin with `agent:`."""


def in_namespace(key: SQLColumnExpression[Any], prefix: str = "prefix") -> ColumnElement[bool]:
    """Whether a key begins with a bound prefix."""
    beyond = bindparam(f"{prefix}_end", type_=TEXT)
    return and_(key >= bindparam(prefix, type_=TEXT), key < beyond)


def moved(key: SQLColumnExpression[Any]) -> ColumnElement[str]:
    """Return a key of the bound prefix with `:new_prefix` in its place."""
    rest = func.substr(key, bindparam("rest", type_=Integer()), type_=TEXT)
    return bindparam("new_prefix", type_=TEXT).concat(rest)


def prefix_of(profile: str) -> str:
    """Return how the keys of a profile begin."""
    return f"{session_key_namespace(profile)}:"


def namespace(profile: str, name: str = "prefix") -> Params:
    """Return what `in_namespace` binds for the keys of a profile."""
    prefix = prefix_of(profile)
    return {name: prefix, f"{name}_end": prefix[:-1] + ";"}


def move(profile: str, target: str) -> Params:
    """Return what `in_namespace` and `moved` bind for keys that go from a profile to another."""
    prefix = prefix_of(profile)
    return {**namespace(profile), "rest": len(prefix) + 1, "new_prefix": prefix_of(target)}
