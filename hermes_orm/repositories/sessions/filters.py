"""Conditions on sessions that listings and counts share."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Integer,
    Select,
    SQLColumnExpression,
    and_,
    bindparam,
    false,
    func,
    or_,
    select,
)

from hermes_orm.arguments import whole_number
from hermes_orm.codec import plain_text
from hermes_orm.dialects.expressions import ascii_lower, bound_texts, text_list, unindexed
from hermes_orm.models import Message, Session
from hermes_orm.models.base import TEXT
from hermes_orm.repositories.lineage.lineage import SessionAlias, chains_holding, is_listable
from hermes_orm.repositories.paging import UNLIMITED
from hermes_orm.session_text import escape_like, fold_ascii, lookup_key

_LONGEST_NEEDLE: Final = 50_000 - 2
"""Bytes; SQLite refuses LIKE patterns of more than 50,000."""

_SEPARATORS: Final = "/\\"

ID_QUERY: Final = "id_query"
"""Name of the condition on ids, and of what it binds."""


@dataclass(frozen=True, slots=True)
class SessionFilter:
    """A set of named conditions with the parameters that they bind.

    The names decide the statement, so they are the key under which it is cached.
    """

    names: frozenset[str]
    params: Mapping[str, Any]


def session_filter(
    *,
    source: str | None = None,
    sources: Iterable[str] | None = None,
    exclude_sources: Iterable[str] | None = None,
    cwd_prefix: str | None = None,
    workspace_key: str | None = None,
    session_key: str | None = None,
    min_message_count: int = 0,
    include_archived: bool = False,
    archived_only: bool = False,
    include_hidden: bool = False,
    include_children: bool = False,
    id_query: str | None = None,
    search_query: str | None = None,
) -> SessionFilter:
    """Return the filter for the arguments of a public operation; an empty one does not filter.

    `cwd_prefix` and `workspace_key` exclude each other.
    """
    builder = FilterBuilder()
    builder.text("source", source)
    builder.texts("sources", None if source else sources)
    builder.texts("exclude_sources", exclude_sources)
    builder.path("cwd", cwd_prefix)
    builder.path("workspace", workspace_key)
    builder.text("session_key", session_key)
    least = whole_number(min_message_count or 0, "min_message_count")
    if least > 0:
        builder.add("min_message_count", min_message_count=min(least, UNLIMITED))
    if archived_only:
        builder.add("archived")
    elif not include_archived:
        builder.add("unarchived")
    if not include_hidden:
        builder.add("unhidden")
    if not include_children:
        builder.add("listable")
    builder.needle(ID_QUERY, plain_text(id_query or "").strip())
    builder.needle("search_query", plain_text(search_query or "").strip())
    return builder.filter()


def empty_sessions(*, include_pinned: bool) -> frozenset[str]:
    """Return the names of what makes a session empty; pinned ones are not, unless included.

    It is ended, not archived, and has no message of any kind: one that is all undone has.
    """
    return frozenset(
        {"empty", "unarchived"} if include_pinned else {"empty", "unarchived", "unpinned"}
    )


def conditions(names: frozenset[str], session: SessionAlias = Session) -> list[ColumnElement[bool]]:
    """Return the conditions of a filter on the rows of `session`."""
    return [condition(session) for name, condition in _CONDITIONS.items() if name in names]


class FilterBuilder:
    """Collects conditions; a text that no column can hold adds one that nothing meets."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.params: dict[str, Any] = {}

    def filter(self) -> SessionFilter:
        """Return what was collected."""
        return SessionFilter(frozenset(self.names), self.params)

    def add(self, name: str, **params: object) -> None:
        """Add a condition with what it binds."""
        self.names.add(name)
        self.params.update(params)

    def text(self, name: str, value: str | None) -> None:
        """Add an equality, unless the text is empty."""
        if value:
            key = lookup_key(value)
            self.add("nothing") if key is None else self.add(name, **{name: key})

    def texts(self, name: str, values: Iterable[str] | None) -> None:
        """Add a condition on a set of texts, unless it is empty; TypeError for a single one."""
        if isinstance(values, str):
            raise TypeError(f"{name} must be a collection of texts such as a list, not one text")
        if values:
            keys = [lookup_key(value) for value in values]
            self.add(name, **{name: text_list(key for key in keys if key is not None)})

    def path(self, name: str, prefix: str | None) -> None:
        """Add that a path is `prefix` or lies below it, unless that is empty."""
        path = lookup_key(prefix or "")
        if path is None:
            self.add("nothing")
        elif stem := path.rstrip(_SEPARATORS):
            self.add(f"{name}_below", stem=stem, stem_length=len(stem))
        elif path:
            self.add(f"{name}_absolute", stem=path[0])

    def needle(self, name: str, query: str) -> None:
        """Add that a text holds `query`, unless that is empty."""
        needle = fold_ascii(query)
        escaped = escape_like(needle)
        if not needle:
            return
        if lookup_key(needle) is None or len(escaped.encode()) > _LONGEST_NEEDLE:
            self.add("nothing")
            return
        self.add(name, **{name: escaped})
        if name == "search_query":
            compact = "".join(sign for sign in needle if sign.isalnum())
            self.add(name, compact_query=compact or None)


def contains(text: SQLColumnExpression[Any], needle: str) -> ColumnElement[bool]:
    """Whether a text holds a bound needle, escaped and folded; A to Z are the same as a to z."""
    # The bound text is not the whole pattern: SQLite would prepare the statement for each one anew.
    return ascii_lower(text).contains(bindparam(needle, type_=TEXT), escape="\\")


def is_within(path: SQLColumnExpression[Any]) -> ColumnElement[bool]:
    """Whether a path is the bound `stem` or lies below it; case counts, unlike in LIKE."""
    length = bindparam("stem_length", type_=Integer())
    following = func.substr(path, length + 1, 1)
    return and_(
        func.substr(path, 1, length) == bindparam("stem", type_=TEXT),
        or_(following == "", *(following == separator for separator in _SEPARATORS)),
    )


def _is_absolute(path: SQLColumnExpression[Any]) -> ColumnElement[bool]:
    return func.substr(path, 1, 1) == bindparam("stem", type_=TEXT)


def _in_workspace(session: SessionAlias, is_there: ColumnElement[bool]) -> ColumnElement[bool]:
    root = func.coalesce(session.git_repo_root, "")
    return or_(root == bindparam("stem", type_=TEXT), and_(root == "", is_there))


def _is_in_id_range(session: SessionAlias) -> ColumnElement[bool]:
    return and_(session.id >= bindparam("first_id"), session.id < bindparam("beyond_id"))


def _is_empty(session: SessionAlias) -> ColumnElement[bool]:
    # With LIMIT, because PostgreSQL would read all messages for an EXISTS here and hash them.
    a_message = select(Message.id).where(Message.session_id == session.id).limit(1)
    return and_(
        session.message_count == 0,
        session.ended_at.is_not(None),
        a_message.scalar_subquery().is_(None),
    )


def _compacted(title: SQLColumnExpression[Any]) -> SQLColumnExpression[Any]:
    for sign in "-_. ":
        title = func.replace(title, sign, "")
    return title


@functools.cache
def _chains_with_id() -> Select[str]:
    return chains_holding(contains(Session.id, ID_QUERY), "chain_with_id")


@functools.cache
def _chains_with_text() -> Select[str]:
    found = or_(
        contains(Session.title, "search_query"),
        contains(Session.id, "search_query"),
        contains(_compacted(Session.title), "compact_query"),
    )
    return chains_holding(found, "chain_with_text")


# An index on `source` would read every session of it to find the newest.
_CONDITIONS: Final[dict[str, Callable[[SessionAlias], ColumnElement[bool]]]] = {
    "nothing": lambda session: false(),
    "source": lambda session: unindexed(session.source) == bindparam("source", type_=TEXT),
    "sources": lambda session: unindexed(session.source).in_(bound_texts("sources")),
    "exclude_sources": lambda session: session.source.not_in(bound_texts("exclude_sources")),
    "cwd_below": lambda session: is_within(session.cwd),
    "cwd_absolute": lambda session: _is_absolute(session.cwd),
    "workspace_below": lambda session: _in_workspace(session, is_within(session.cwd)),
    "workspace_absolute": lambda session: _in_workspace(session, _is_absolute(session.cwd)),
    "session_key": lambda session: session.session_key == bindparam("session_key"),
    "min_message_count": lambda session: session.message_count >= bindparam("min_message_count"),
    "archived": lambda session: session.archived == 1,
    "unarchived": lambda session: session.archived == 0,
    "unpinned": lambda session: session.pinned == 0,
    "unhidden": lambda session: session.hidden == 0,
    "id_range": _is_in_id_range,
    ID_QUERY: lambda session: session.id.in_(_chains_with_id()),
    "search_query": lambda session: session.id.in_(_chains_with_text()),
    "listable": is_listable,
    "empty": _is_empty,
}
