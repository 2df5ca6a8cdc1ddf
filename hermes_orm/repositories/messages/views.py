"""What stands around a message, and how its session begins and ends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    ClauseElement,
    ColumnElement,
    Select,
    SQLColumnExpression,
    bindparam,
    func,
    literal,
    select,
    union_all,
)
from sqlalchemy.orm import aliased

from hermes_orm.arguments import whole_number
from hermes_orm.codec import encode_content, encode_integer, encode_text
from hermes_orm.dialects import Prepared
from hermes_orm.dialects.expressions import bound_texts, is_beyond, text_list
from hermes_orm.models import Message
from hermes_orm.repositories.base import Repository
from hermes_orm.repositories.lineage.ancestry import SESSION_ID
from hermes_orm.repositories.messages.rows import MESSAGE_KEYS, decode_row
from hermes_orm.repositories.messages.transcripts import (
    in_session_order,
    is_visible,
    message_columns,
)
from hermes_orm.repositories.paging import row_limit
from hermes_orm.rows import AnchoredView, MessageRow, MessageWindow
from hermes_orm.session_text import lookup_key

_ANCHOR: Final = bindparam("anchor", type_=BigInteger)
_START, _WINDOW, _END = range(3)
_TALK: Final = ("user", "assistant")


def _nearest(
    row: type[Message],
    beyond: SQLColumnExpression[Any],
    limit: str,
    *conditions: ColumnElement[bool],
    before: bool,
    newest_first: bool,
) -> Select[Any]:
    """Select the ids of the session's first or last rows beyond an id that are not undone."""
    return (
        select(row.id)
        .where(is_beyond(row, SESSION_ID, beyond, before=before), is_visible(row), *conditions)
        .order_by(*in_session_order(row, newest_first=newest_first))
        .limit(bindparam(limit, type_=BigInteger))
    )


def _window_ids() -> Any:
    before, after = aliased(Message), aliased(Message)
    earlier, later = (
        _nearest(row, _ANCHOR, "window", before=is_before, newest_first=is_before).subquery()
        for row, is_before in ((before, True), (after, False))
    )
    anchor = select(Message.id).where(Message.id == _ANCHOR, Message.session_id == SESSION_ID)
    return union_all(anchor, select(earlier.c.id), select(later.c.id)).cte("around")


def _around() -> ClauseElement:
    ids = _window_ids()
    return (
        select(*message_columns(MESSAGE_KEYS))
        .where(Message.id.in_(select(ids.c.id)))
        .order_by(Message.id)
    )


@lru_cache
def anchored(*, every_role: bool) -> Prepared:
    """Return the statement that reads a window and the bookends of its session.

    The first column says what part a row belongs to.
    """
    window = _window_ids()
    first, last = aliased(Message), aliased(Message)
    least, greatest = (select(edge(window.c.id)).scalar_subquery() for edge in (func.min, func.max))
    start, end = (
        _nearest(
            row,
            edge,
            "bookend",
            *_says(row, every_role),
            before=is_start,
            newest_first=not is_start,
        ).subquery()
        for row, edge, is_start in ((first, least, True), (last, greatest, False))
    )
    parts = union_all(
        *(
            select(literal(part).label("part"), ids.c.id)
            for part, ids in ((_START, start), (_WINDOW, window), (_END, end))
        )
    ).subquery()
    return Prepared(
        select(parts.c.part, *message_columns(MESSAGE_KEYS))
        .join_from(parts, Message, Message.id == parts.c.id)
        .order_by(Message.id)
    )


def _says(message: type[Message], every_role: bool) -> list[ColumnElement[bool]]:
    """Whether a message is of a wanted role and its content is not empty."""
    empty = (bindparam(name, type_=message.content.type) for name in ("empty_list", "empty_dict"))
    wanted = [] if every_role else [message.role.in_(bound_texts("roles"))]
    return [*wanted, message.content != "", *(message.content != value for value in empty)]


AROUND = Prepared(_around)


class ViewRepository(Repository):
    """Rows of `messages` around one of them. Undone rows are left out, archived ones are not."""

    def get_messages_around(
        self, session_id: str, around_message_id: int, window: int = 5
    ) -> MessageWindow:
        """Return a message of the session with up to `window` others on each side of it.

        The counts are the messages returned on each side. Nothing when the session has no such
        message; undone ones are left out, but may be the one in the middle.
        """
        anchor = encode_integer(around_message_id)
        rows = self.tx.all(AROUND, _window(session_id, anchor, window))
        return _cut([decode_row(row) for row in rows], anchor)

    def get_anchored_view(
        self,
        session_id: str,
        around_message_id: int,
        window: int = 5,
        bookend: int = 3,
        keep_roles: Iterable[str] | None = _TALK,
    ) -> AnchoredView:
        """Return a window as `get_messages_around`, and how the session begins and ends outside it.

        Other roles than `keep_roles` are left out, except of the message itself; None keeps all.
        The counts include what is left out. Bookends are up to `bookend` messages with content.
        """
        anchor, marker = encode_integer(around_message_id), self.tx.dialect.content_marker
        roles = None if keep_roles is None else {encode_text(role) or "" for role in keep_roles}
        params = {
            **_window(session_id, anchor, window),
            "bookend": row_limit(max(0, whole_number(bookend, "bookend"))),
            "empty_list": encode_content(marker, []),
            "empty_dict": encode_content(marker, {}),
            "roles": text_list(roles or ()),
        }
        parts: tuple[list[MessageRow], ...] = ([], [], [])
        for part, *row in self.tx.all(anchored(every_role=roles is None), params):
            parts[part].append(decode_row(row))
        found = _cut(parts[_WINDOW], anchor)
        if not found["window"]:
            return {**found, "bookend_start": [], "bookend_end": []}
        if roles is not None:
            found["window"] = [
                row for row in found["window"] if row["id"] == anchor or row["role"] in roles
            ]
        return {**found, "bookend_start": parts[_START], "bookend_end": parts[_END]}


def _window(session_id: str, anchor: int | None, window: int) -> dict[str, Any]:
    return {
        "session_id": lookup_key(session_id),
        "anchor": anchor,
        "window": row_limit(max(0, whole_number(window, "window"))),
    }


def _cut(rows: Sequence[MessageRow], anchor: int | None) -> MessageWindow:
    """Return the window of rows around the anchor; an empty one when it is not among them."""
    position = next((n for n, row in enumerate(rows) if row["id"] == anchor), None)
    if position is None:
        return {"window": [], "messages_before": 0, "messages_after": 0}
    return {
        "window": list(rows),
        "messages_before": position,
        "messages_after": len(rows) - position - 1,
    }
