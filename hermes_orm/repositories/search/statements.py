"""The statements of a message search, one for each combination of what decides their text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Select,
    and_,
    bindparam,
    case,
    false,
    or_,
    select,
    true,
)

from hermes_orm.dialects import Prepared
from hermes_orm.dialects.base import Search
from hermes_orm.dialects.expressions import bound_texts, leading_text, unindexed
from hermes_orm.dialects.search import LIMIT, OFFSET, SearchIndex
from hermes_orm.dialects.text_condition import TextCondition
from hermes_orm.models import Message, Session
from hermes_orm.repositories.search.request import TOOL, UNCOVERED_SOURCES, Order
from hermes_orm.repositories.search.surroundings import (
    CONTEXT_COLUMNS,
    stored_content,
    with_neighbours,
)
from hermes_orm.repositories.sessions.filters import conditions as session_conditions
from hermes_orm.repositories.sessions.markers import DELEGATE_FROM, config_marker
from hermes_orm.search.text import INDEXED_CHARACTERS

HIDDEN: Final = "hidden"
"""Kind of a message that no display shows."""

MOST_PARTS_KEPT: Final = 32


class Texts(NamedTuple):
    """Which texts of its messages a search looks at, and shows."""

    has_calls: bool
    """Tool calls are looked at, beside content and tool name."""
    are_whole: bool = False
    """All of them, not only what an index holds."""


class Shown(IntEnum):
    """How much of a row is read; each includes the ones before."""

    STATE = 1
    """`id` and `active`."""
    VALUES = 2
    TEXTS = 3
    """The texts in which was searched, too."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What decides the text of a page's statements; the key under which they are cached."""

    search: Search
    index: SearchIndex | None
    texts: Texts
    condition: TextCondition | None
    """What is left to be checked of the candidates."""
    filters: frozenset[str]
    order: Order
    shown: Shown
    has_context: bool = False
    """Whether the context is read, too; its columns come last."""
    has_gap: bool = False
    """Whether messages are among them whose texts SQL cannot read: they are to be checked."""


PLAIN_COLUMNS: Final[dict[str, Any]] = {
    "id": Message.id,
    "active": Message.active,
    "session_id": Message.session_id,
    "role": Message.role,
    "timestamp": Message.timestamp,
    "tool_name": Message.tool_name,
    "source": Session.source,
    "model": Session.model,
    "session_started": Session.started_at,
}
"""What a row of a page begins with; content and tool calls follow where texts are shown."""


def pages(shape: Shape) -> tuple[Prepared, ...]:
    """Return the statements of a page; one that yields nothing may have left it to the next.

    Those of long queries are large, and hardly ever used again.
    """
    is_long = shape.condition is not None and len(shape.condition.params) > MOST_PARTS_KEPT
    return _pages.__wrapped__(shape) if is_long else _pages(shape)


@lru_cache(maxsize=256)
def _pages(shape: Shape) -> tuple[Prepared, ...]:
    found = shape.search.candidates(shape.index, whole=shape.texts.are_whole)
    is_hit: list[ColumnElement[bool]] = []
    if "covered" in shape.filters:  # first: the long texts of tool messages are not even read
        is_hit.append(unindexed(found.message.role) != TOOL)
    if shape.condition is not None:
        searched = found.texts if shape.texts.has_calls else found.texts[:2]
        holds = shape.condition.on(searched)
        undecided = shape.search.undecided() if shape.has_gap else None
        is_hit.append(holds if undecided is None else or_(holds, undecided))
    is_hit += _conditions(shape.filters, found.message)
    rows = found.rows.where(*is_hit)
    shown = _shown_columns(shape)
    if shape.index is SearchIndex.WORDS and shape.order is Order.RELEVANCE:
        statements = shape.search.ranked(rows, shown)
    else:
        statements = (_by_time(rows, found.message, shown, shape.order),)
    if shape.has_context:
        statements = tuple(map(with_neighbours, statements))
    return tuple(map(Prepared, statements))


def _by_time(
    rows: Select[int],
    message: type[Message],
    shown: Sequence[ColumnElement[Any]],
    order: Order,
) -> Select[Any]:
    """Select the page of `rows` in the order of time; texts are read for no other row."""

    def keys(message: type[Message]) -> list[ColumnElement[Any]]:
        columns = (message.timestamp, message.id)
        return [key.asc() if order is Order.OLDEST else key.desc() for key in columns]

    page = rows.order_by(*keys(message)).limit(LIMIT).offset(OFFSET).cte("page")
    return (
        select(*shown)
        .join_from(page, Message, Message.id == page.c.id)
        .join(Session, Session.id == Message.session_id)
        .order_by(*keys(Message))
    )


def _shown_columns(shape: Shape) -> list[ColumnElement[Any]]:
    columns = list(PLAIN_COLUMNS.values())
    if shape.shown is Shown.STATE:
        return columns[:2]
    if shape.shown is Shown.TEXTS:
        columns += _text_columns(shape.texts)
    return [*columns, *CONTEXT_COLUMNS] if shape.has_context else columns


def _text_columns(texts: Texts) -> list[Any]:
    if texts.are_whole:
        return [Message.content]
    columns: list[Any] = [stored_content(Message, INDEXED_CHARACTERS)]
    if texts.has_calls:
        columns.append(leading_text(Message.tool_calls, INDEXED_CHARACTERS))
    return columns


def _conditions(filters: frozenset[str], message: type[Message]) -> list[ColumnElement[bool]]:
    """The named conditions, and those on every hit."""
    named: dict[str, Callable[[], ColumnElement[bool]]] = {
        "roles": lambda: unindexed(message.role).in_(bound_texts("roles")),
        "visible": lambda: or_(unindexed(message.active) == 1, message.compacted == 1),
        "gap": lambda: and_(
            message.id > bindparam("gap_after", type_=BigInteger()),
            message.id <= bindparam("gap_last", type_=BigInteger()),
        ),
        "covered": lambda: and_(
            *(Session.source != source for source in UNCOVERED_SOURCES),
            # PostgreSQL takes hardly any session to satisfy IS NULL, and would begin with them.
            case((config_marker(Session, DELEGATE_FROM).is_(None), true()), else_=false()),
        ),
    }
    return [
        message.display_kind.is_distinct_from(HIDDEN),
        *session_conditions(filters),
        *(condition() for name, condition in named.items() if name in filters),
    ]
