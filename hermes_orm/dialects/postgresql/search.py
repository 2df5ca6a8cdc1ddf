"""Search on PostgreSQL: a tsvector per message finds words and pairs of CJK characters.

Parts of Latin words are found by scan. A trigram index would find them in 0.1 ms of 20, but costs
too much of each append: measured with a copy of the text in the side table, 480 instead of 190 us
of the server, and 2.7 kB instead of nothing for a message of 460 bytes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Integer,
    Select,
    SQLColumnExpression,
    Text,
    and_,
    bindparam,
    case,
    cast,
    func,
    select,
)
from sqlalchemy.dialects.postgresql import TSQUERY

from hermes_orm.dialects.base import Search
from hermes_orm.dialects.postgresql.ranking import UNITS, by_bm25, by_density
from hermes_orm.dialects.prepared import Params
from hermes_orm.dialects.search import Candidates, SearchIndex
from hermes_orm.models import Message, MessageSearch, Session
from hermes_orm.search.cjk import is_cjk_pair
from hermes_orm.search.compilers import to_exact_pair_tsquery, to_pair_tsquery, to_tsquery
from hermes_orm.search.query import Node, positive_units, units
from hermes_orm.search.text import INDEXED_CHARACTERS, INDEXED_TOOL_CHARACTERS

MOST_UNITS_SCORED: Final = 16
"""Words and phrases; each costs a count of what it finds."""


@dataclass(frozen=True)
class PostgreSQLSearch(Search):
    """Search by one GIN index; what it finds for a substring is checked, the rest is a scan."""

    exact = frozenset({SearchIndex.WORDS, SearchIndex.PAIRS})

    def route(self, index: SearchIndex) -> str:
        """Return the name of an index in the log."""
        return "fts5" if index is SearchIndex.WORDS else "fts_cjk"

    def parameters(self, index: SearchIndex, tree: Node) -> Params | None:
        """Return the tsquery; None for substrings that need not hold a pair of CJK characters.

        Those that are pairs need no look at the texts.
        """
        if index is SearchIndex.PAIRS:
            are_pairs = all(is_cjk_pair(unit.text) for unit in units(tree))
            return {"match": to_exact_pair_tsquery(tree)} if are_pairs else None
        if index is SearchIndex.SUBSTRINGS:
            pairs = to_pair_tsquery(tree)
            return None if pairs is None else {"match": pairs}
        scored = [to_tsquery(unit) for unit in dict.fromkeys(positive_units(tree))]
        if len(scored) > MOST_UNITS_SCORED:
            scored = []
        return {"match": to_tsquery(tree), UNITS: json.dumps(scored)}

    def candidates(self, index: SearchIndex | None, *, whole: bool = False) -> Candidates:
        """Return what an index finds, or all messages; only words need no check of the texts."""
        rows = (
            select(Message.id)
            .join_from(Message, Session, Session.id == Message.session_id)
            .outerjoin(MessageSearch, MessageSearch.message_id == Message.id)
        )
        if index is not None:
            match = cast(bindparam("match", type_=Text()), TSQUERY())
            rows = rows.where(MessageSearch.vec.op("@@")(match))
        if index in self.exact:
            return Candidates(rows, Message, ())
        return Candidates(rows, Message, _whole_texts() if whole else _indexed_texts())

    def ranked(
        self, rows: Select[int], shown: Sequence[ColumnElement[Any]]
    ) -> tuple[Select[Any], ...]:
        """Return the page in the order of BM25, and of word density for when there are too many."""
        return by_bm25(rows, shown), by_density(rows, shown)

    def undecided(self) -> ColumnElement[bool]:
        """Return the condition on structured messages without an entry, which holds their text."""
        # The marker of structured content is the only text that begins with this character.
        return and_(MessageSearch.message_id.is_(None), Message.content.startswith("\x01"))


def _whole_texts() -> tuple[ColumnElement[str], ...]:
    content = func.coalesce(MessageSearch.search_text, Message.content, "")
    return content, func.coalesce(Message.tool_name, "")


def _indexed_texts() -> tuple[ColumnElement[str], ...]:
    """The texts as `search_columns` cuts them: the columns share one budget, in order."""
    limit = case((Message.role == "tool", INDEXED_TOOL_CHARACTERS), else_=INDEXED_CHARACTERS)
    content = func.coalesce(MessageSearch.search_text, _cut(Message.content, limit), "")
    left = INDEXED_CHARACTERS - func.length(content)
    name = func.coalesce(_cut(Message.tool_name, left), "")
    calls = func.coalesce(_cut(Message.tool_calls, left - func.length(name)), "")
    return content, name, calls


def _cut(text: SQLColumnExpression[Any], limit: ColumnElement[int]) -> ColumnElement[str]:
    """At most `limit` characters of a text; one that is short is not even read for this."""
    octets = func.octet_length(text, type_=Integer)
    return case((octets <= limit, text), else_=func.left(text, func.greatest(0, limit)))
