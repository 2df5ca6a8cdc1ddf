"""How message rows enter a transcript on PostgreSQL: one data-modifying statement."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import (
    CTE,
    BigInteger,
    BindParameter,
    Integer,
    ScalarSelect,
    Select,
    Subquery,
    Text,
    and_,
    bindparam,
    cast,
    column,
    exists,
    func,
    insert,
    literal_column,
    or_,
    select,
    update,
)
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import TypeCompiler
from sqlalchemy.types import TypeEngine, UserDefinedType

from hermes_orm.codec import decode_content
from hermes_orm.dialects.base import Transaction, Transcript
from hermes_orm.dialects.expressions import epoch_now
from hermes_orm.dialects.postgresql.errors import sqlstate_of
from hermes_orm.dialects.prepared import Params, Prepared
from hermes_orm.dialects.recency import time_or_null
from hermes_orm.dialects.transcript import (
    COPIED,
    MINIMAL_TTL_SECONDS,
    WRITTEN,
    TurnLease,
    count_added,
    tail_of_source,
)
from hermes_orm.models import Message, MessageSearch, Session, SessionRecency, SessionTurnLease
from hermes_orm.search.text import search_text
from hermes_orm.search.vector import tsvector_text

logger = logging.getLogger(__name__)

TEXT = Message.content.type
SUPPLIED = {column.name: column.type for column in WRITTEN if column.name != "session_id"}
OWNED = SUPPLIED | {"session_id": TEXT}
INDEXED = {"vec": TEXT, "doc_len": Integer(), "search_text": TEXT}
NO_WORDS = {"vec": "", "doc_len": 0}


def entry(row: Params) -> Params:
    """Return the entry of a message in the search index."""
    stored, role = row["content"], row["role"]
    content = decode_content(stored)
    vec, doc_len = tsvector_text(content, row["tool_name"], row["tool_calls"], role)
    text = None if content is stored else search_text(content, role)
    return {"vec": vec, "doc_len": doc_len, "search_text": text}


class PostgreSQLTranscript(Transcript):
    """Appends on PostgreSQL: guards, counters, rows, search rows and recency at once.

    The identity is drawn while the session row is locked, so ids follow the order of commits.
    """

    def indexed(self, row: Params) -> Params:
        """Return the row with its entry in the search index."""
        return {**row, **entry(row)}

    def append(self, tx: Transaction, row: Params, lease: TurnLease | None) -> int | None:
        """Insert one live row and count it."""
        params = {**row, "latest": row["timestamp"]}
        return _append(tx, params, NO_WORDS, lease, many=False)

    def extend(
        self, tx: Transaction, rows: Sequence[Params], total: Params, lease: TurnLease | None
    ) -> bool:
        """Insert rows in order and count them once."""
        columns = _columns(rows, (*SUPPLIED, *INDEXED))
        params = {**total, **columns, "latest": max(columns["timestamp"])}
        no_words = {name: [value] * len(rows) for name, value in NO_WORDS.items()}
        return _append(tx, params, no_words, lease, many=True) is not None

    def fill(self, tx: Transaction, rows: Sequence[Params]) -> None:
        """Insert rows of new sessions in order, with search rows and recency."""
        tx.scalar(FILL, _columns(rows, (*OWNED, *INDEXED)))

    def copy_tail(self, tx: Transaction, tail: Params) -> int:
        """Copy live rows of a session in order, with their search rows."""
        copied: int = tx.scalar(COPY_TAIL, tail)
        return copied


def _columns(rows: Sequence[Params], names: Iterable[str]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in rows] for name in names}


def _append(
    tx: Transaction, params: Params, no_words: Params, lease: TurnLease | None, *, many: bool
) -> int | None:
    """Return the greatest id that was drawn, None when the session refuses the rows."""
    statement = append_statement(lease.key if lease else None, many)
    if lease is not None:
        ttl_seconds = max(MINIMAL_TTL_SECONDS, lease.ttl_seconds)
        params = {**params, "holder": lease.holder, "ttl_seconds": ttl_seconds}
    try:
        row_id: int | None = tx.scalar(statement, params)
    except Exception as error:
        if not _is_refused_vector(error):
            raise
        logger.warning("the search index refused a message; it is stored without its words")
        row_id = tx.scalar(statement, {**params, **no_words})
    return row_id


def _is_refused_vector(error: Exception) -> bool:
    """Whether the statement, of which nothing was stored, may succeed without words to index."""
    state = sqlstate_of(error) or ""
    return state == "54000" or state.startswith("22")


@lru_cache
def append_statement(key: ScalarSelect[str] | None, many: bool) -> Prepared:
    """Return the statement that appends one row, or many rows given as arrays; its result is an id.

    `key` is the conversation whose turn lease `:holder` must have.
    """
    given = (_given_rows(SUPPLIED) if many else _given_row()).cte("given")
    held = None if key is None else _held_lease(key)
    counted = _counted(held)
    message = (
        insert(Message)
        .from_select(
            ["session_id", *SUPPLIED],
            select(counted.c.id, *(given.c[name] for name in SUPPLIED)).order_by(given.c.n),
        )
        .returning(Message.id)
        .cte("message")
    )
    others = [_search_entries(message, given), _recency(counted)]
    if held is not None:
        others.append(_renewed_lease(held, counted))
    return Prepared(select(func.max(message.c.id)).add_cte(*others), modifies=True)


def _given_row() -> Select[int]:
    values = [bindparam(name, type_=of).label(name) for name, of in (SUPPLIED | INDEXED).items()]
    return select(literal_column("1", BigInteger).label("n"), *values)


def _given_rows(columns: Mapping[str, TypeEngine[Any]]) -> Select[int]:
    types = {**columns, **INDEXED}
    arrays = [cast(bindparam(name), ArrayOf(of)) for name, of in types.items()]
    rows = func.unnest(*arrays).table_valued(
        *(column(name, of) for name, of in types.items()), with_ordinality="n"
    )
    return select(rows.render_derived("row"))


class ArrayOf(UserDefinedType[list[Any]]):
    """A PostgreSQL array that the driver takes as a list; SQLAlchemy's own would convert it."""

    cache_ok = True

    def __init__(self, element: TypeEngine[Any]) -> None:
        self.element = element


@compiles(ArrayOf)
def _(array: ArrayOf, compiler: TypeCompiler, **kw: Any) -> str:
    element = Text() if isinstance(array.element, Text) else array.element  # without a collation
    return f"{compiler.process(element)}[]"


def _held_lease(key: ScalarSelect[str]) -> CTE:
    """The holder's lease, locked until commit, after the session whose messages it guards."""
    lease = SessionTurnLease
    return (
        select(lease.conversation_id, lease.expires_at)
        .join_from(Session, lease, lease.conversation_id == key)
        .where(Session.id == bindparam("session_id"), lease.holder == bindparam("holder"))
        .with_for_update(of=[Session, lease], key_share=True)
        .cte("held")
    )


def _renewed_lease(held: CTE, counted: CTE) -> CTE:
    """An own lease that has expired lasts again; nothing happens when the session is closed."""
    now = epoch_now("now")
    return (
        update(SessionTurnLease)
        .where(
            SessionTurnLease.conversation_id == held.c.conversation_id,
            held.c.expires_at <= now,
            exists(select(counted.c.id)),
        )
        .values(expires_at=now + bindparam("ttl_seconds", type_=SessionTurnLease.expires_at.type))
        .cte("renewed")
    )


def _counted(held: CTE | None) -> CTE:
    """The session, counted up and locked, if it takes messages; every other part builds on it."""
    has_no_message = ~exists(select(Message.id).where(Message.session_id == Session.id))
    is_first = and_(
        Session.message_count == bindparam("added_rows", type_=BigInteger),
        Session.last_activity_at.is_(None),
        has_no_message,
    )
    counted = count_added()
    if held is not None:
        counted = counted.where(exists(select(held.c.conversation_id)))
    return counted.returning(Session.id, Session.last_activity_at, is_first.label("is_first")).cte(
        "counted"
    )


def _numbered(message: CTE) -> Subquery:
    """The inserted rows, counted from 1 in their order."""
    n = func.row_number().over(order_by=message.c.id).label("n")
    return select(message.c.id, n).subquery("numbered")


def _search_entries(message: CTE, given: CTE) -> CTE:
    numbered = _numbered(message)
    vec = cast(given.c.vec, MessageSearch.vec.type)
    return (
        insert(MessageSearch)
        .from_select(
            ["message_id", *INDEXED],
            select(numbered.c.id, vec, given.c.doc_len, given.c.search_text).join_from(
                numbered, given, numbered.c.n == given.c.n
            ),
        )
        .cte("entry")
    )


def _recency(counted: CTE) -> CTE:
    """The session's last sign of life; its start counts only while it has no other."""
    latest = bindparam("latest", type_=SessionRecency.last_active.type)
    seen = postgresql.insert(SessionRecency).from_select(
        ["session_id", "last_active"],
        select(counted.c.id, func.greatest(latest, time_or_null(counted.c.last_activity_at))),
    )
    last_active = seen.excluded.last_active
    is_first = select(counted.c.is_first).scalar_subquery()
    return seen.on_conflict_do_update(
        index_elements=["session_id"],
        set_={"last_active": last_active},
        where=or_(SessionRecency.last_active < last_active, is_first),
    ).cte("recency")


def _fill() -> Select[int]:
    """Return the statement that inserts rows of several sessions; their latest one counts."""
    given = _given_rows(OWNED).cte("given")
    message = (
        insert(Message)
        .from_select(list(OWNED), select(*(given.c[name] for name in OWNED)).order_by(given.c.n))
        .returning(Message.id, Message.session_id, Message.timestamp)
        .cte("message")
    )
    latest = func.max(message.c.timestamp)
    seen = postgresql.insert(SessionRecency).from_select(
        ["session_id", "last_active"],
        select(message.c.session_id, latest).group_by(message.c.session_id),
    )
    recency = seen.on_conflict_do_update(
        index_elements=["session_id"], set_={"last_active": seen.excluded.last_active}
    ).cte("recency")
    entries = _search_entries(message, given)
    return select(func.count(message.c.id)).add_cte(entries, recency)


def _copy_tail() -> Select[int]:
    """Return the statement that copies rows with all that is derived from them; it counts them."""
    n = func.row_number().over(order_by=Message.id).label("n")
    tail = select(Message.id, *COPIED, n).where(*tail_of_source()).cte("tail")
    target = bindparam("session_id", type_=TEXT)
    names = [column.name for column in COPIED]
    message = (
        insert(Message)
        .from_select(
            ["session_id", *names],
            select(target, *(tail.c[name] for name in names)).order_by(tail.c.n),
        )
        .returning(Message.id, Message.timestamp)
        .cte("message")
    )
    return select(func.count(message.c.id)).add_cte(
        _copied_entries(message, tail), _raised_recency(message, target)
    )


def _copied_entries(message: CTE, tail: CTE) -> CTE:
    numbered, entry = _numbered(message), MessageSearch
    return (
        insert(MessageSearch)
        .from_select(
            ["message_id", *INDEXED],
            select(numbered.c.id, entry.vec, entry.doc_len, entry.search_text)
            .join_from(numbered, tail, numbered.c.n == tail.c.n)
            .join(entry, entry.message_id == tail.c.id),
        )
        .cte("entry")
    )


def _raised_recency(message: CTE, session_id: BindParameter[str]) -> CTE:
    latest = func.max(message.c.timestamp)
    seen = postgresql.insert(SessionRecency).from_select(
        ["session_id", "last_active"], select(session_id, latest).having(latest.is_not(None))
    )
    last_active = seen.excluded.last_active
    return seen.on_conflict_do_update(
        index_elements=["session_id"],
        set_={"last_active": last_active},
        where=SessionRecency.last_active < last_active,
    ).cte("recency")


COPY_TAIL = Prepared(_copy_tail, modifies=True)
FILL = Prepared(_fill, modifies=True)
