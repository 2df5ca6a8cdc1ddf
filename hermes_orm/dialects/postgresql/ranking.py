"""Relevance of what a word search finds: the score that FTS5 gives, from what a tsvector keeps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import (
    CTE,
    ColumnElement,
    Double,
    ScalarSelect,
    Select,
    Text,
    bindparam,
    case,
    cast,
    func,
    literal,
    select,
)
from sqlalchemy.dialects.postgresql import TSQUERY

from hermes_orm.dialects.expressions import bound_texts
from hermes_orm.dialects.search import LIMIT, OFFSET
from hermes_orm.models import Message, MessageSearch, Session

UNITS: Final = "units"
"""Parameter: the tsqueries, as a JSON array, of the words and phrases that a hit may show."""

MOST_SCORED: Final = 2_000
"""Rows; more of them are ranked by their density, which costs a fraction."""

_MOST_COUNTED: Final = 10_000
_SAMPLED_LENGTHS: Final = 500
_K1: Final = 1.2
_B: Final = 0.75

# ts_rank() is the sum of 1/j² over the occurrences of a word, times these.
_WEIGHT: Final = 0.1
_SUM_OF_ALL: Final = 1.64493406685


def by_bm25(rows: Select[int], shown: Sequence[ColumnElement[Any]]) -> Select[Any]:
    """Return a page in the order of BM25; nothing when `rows` are more than MOST_SCORED."""
    entry = MessageSearch
    candidate = rows.add_columns(entry.vec, entry.doc_len).limit(MOST_SCORED + 1).cte("candidate")
    are_few = select(func.count()).select_from(candidate).scalar_subquery() <= MOST_SCORED
    unit = _units()
    found = (
        select(candidate.c.id, _score(candidate, unit).label("score"))
        .join_from(candidate, unit, are_few)
        .group_by(candidate.c.id)
    )
    return _page(found, shown)


def by_density(rows: Select[int], shown: Sequence[ColumnElement[Any]]) -> Select[Any]:
    """Return a page in the order of how much of a message the found words are."""
    match = cast(bindparam("match", type_=Text()), TSQUERY())
    score = func.ts_rank(MessageSearch.vec, match, 1, type_=Double)
    return _page(rows.add_columns(score.label("score")), shown)


def _page(found: Select[Any], shown: Sequence[ColumnElement[Any]]) -> Select[Any]:
    """The page of `found` (id, score), its texts read for no other row."""
    row_id, score = found.selected_columns
    page = found.order_by(score.desc(), row_id).limit(LIMIT).offset(OFFSET).cte("page")
    return (
        select(*shown)
        .join_from(page, Message, Message.id == page.c.id)
        .join(Session, Session.id == Message.session_id)
        .order_by(page.c.score.desc(), page.c.id)
    )


def _units() -> CTE:
    """What is looked for: each tsquery, and in how many messages it is found."""
    given = bound_texts(UNITS).subquery("given")
    query = cast(given.c.value, TSQUERY())
    matching = (
        select(MessageSearch.message_id)
        .where(MessageSearch.vec.op("@@")(query))
        .correlate(given)
        .limit(_MOST_COUNTED)
        .subquery()
    )
    count = select(func.count()).select_from(matching).scalar_subquery()
    unit = select(query.label("query"), count.label("matching")).cte("unit")
    return unit.prefix_with("MATERIALIZED")  # else it is counted again for each candidate


def _score(candidate: CTE, unit: CTE) -> ColumnElement[float]:
    rank = func.ts_rank(candidate.c.vec, unit.c.query, type_=Double)
    rest = func.greatest(_SUM_OF_ALL * (1 - rank / _WEIGHT), 1e-3)
    occurrences = func.greatest(1 / rest - 0.5, 1.0)
    relative_length = candidate.c.doc_len / _average_length()
    saturated = occurrences * (_K1 + 1) / (occurrences + _K1 * (1 - _B + _B * relative_length))
    total = select(cast(func.max(MessageSearch.message_id), Double)).scalar_subquery()
    rarity = func.ln((total - unit.c.matching + 0.5) / (unit.c.matching + 0.5), type_=Double)
    return func.sum(case((rank > 0, func.greatest(rarity, 1e-6) * saturated), else_=literal(0.0)))


def _average_length() -> ScalarSelect[float]:
    """The length of a message in words, on average of the latest."""
    latest = (
        select(MessageSearch.doc_len)
        .order_by(MessageSearch.message_id.desc())
        .limit(_SAMPLED_LENGTHS)
        .subquery("latest")
    )
    return select(cast(func.avg(latest.c.doc_len), Double)).scalar_subquery()
