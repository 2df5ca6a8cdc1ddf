"""Search on SQLite: FTS5 finds words and, of three characters or more, substrings."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Select,
    TableClause,
    Text,
    bindparam,
    column,
    func,
    literal_column,
    select,
    table,
)
from sqlalchemy.orm import aliased

from hermes_orm.dialects.base import Search
from hermes_orm.dialects.indexing import CJK_REBUILD
from hermes_orm.dialects.prepared import Params
from hermes_orm.dialects.search import LIMIT, OFFSET, Candidates, SearchIndex
from hermes_orm.dialects.sqlite import search_ddl
from hermes_orm.dialects.sqlite.driver import as_standard
from hermes_orm.dialects.sqlite.search_upkeep import CJK_STALE, LEGACY, STALE, SUBSTRINGS_STALE
from hermes_orm.models import Message, Session
from hermes_orm.search.cjk import is_cjk_run
from hermes_orm.search.compilers import to_fts5
from hermes_orm.search.query import Node, units

LEAST_SUBSTRING: Final = 3
"""Characters; a shorter text has no trigram."""

_DAMAGE: Final = re.compile(
    "malformed|fts5|messages_fts|vtable constructor failed|no such tokenizer"
)
_ROUTES: Final = {
    SearchIndex.WORDS: "fts5",
    SearchIndex.SUBSTRINGS: "trigram",
    SearchIndex.PAIRS: "fts_cjk",
}
_STALE_KEYS: Final = {
    SearchIndex.PAIRS: (STALE, CJK_STALE, CJK_REBUILD.high_water),
    SearchIndex.WORDS: (STALE,),
    SearchIndex.SUBSTRINGS: (STALE, SUBSTRINGS_STALE, LEGACY),
}
"""The last one: the index of a former layout holds other texts, too."""


def _fts_table(index: search_ddl.FtsIndex) -> TableClause:
    return table(index.name, column("rowid"), column("rank"), column(index.name))


WORDS: Final = _fts_table(search_ddl.WORDS)
TABLES: Final = {
    SearchIndex.WORDS: WORDS,
    SearchIndex.SUBSTRINGS: _fts_table(search_ddl.SUBSTRINGS),
    SearchIndex.PAIRS: _fts_table(search_ddl.CJK),
}


@dataclass(frozen=True)
class SQLiteSearch(Search):
    """Search by two FTS5 tables, and by scan for shorter substrings."""

    exact = frozenset(SearchIndex)
    has_cjk: bool = False
    """Whether the connections of the store have loaded the CJK tokenizer."""

    def route(self, index: SearchIndex) -> str:
        """Return the name of an index in the log."""
        return _ROUTES[index]

    def parameters(self, index: SearchIndex, tree: Node) -> Params | None:
        """Return the FTS5 expression; None for a substring without trigrams."""
        if index is SearchIndex.PAIRS:
            is_served = self.has_cjk and all(is_cjk_run(unit.text) for unit in units(tree))
            return {"match": f"{{content tool_name}} : ({to_fts5(tree)})"} if is_served else None
        if index is SearchIndex.SUBSTRINGS:
            shortest = min(len(unit.text) for unit in units(tree))
            if shortest < LEAST_SUBSTRING:
                return None
        return {"match": to_fts5(tree)}

    def candidates(self, index: SearchIndex | None, *, whole: bool = False) -> Candidates:
        """Return what an index finds, which are hits, or all messages with their texts."""
        if index is None:
            return _all_messages(whole)
        fts = TABLES[index]
        matches = fts.c[fts.name].op("MATCH")(bindparam("match", type_=Text()))
        rows = _with_session(Message).join(fts, fts.c.rowid == Message.id).where(matches)
        return Candidates(rows, Message, ())

    def ranked(
        self, rows: Select[int], shown: Sequence[ColumnElement[Any]]
    ) -> tuple[Select[Any], ...]:
        """Return the page in the order of BM25, in which FTS5 itself delivers it."""
        page = rows.with_only_columns(*shown, maintain_column_froms=True)
        # Another term would have SQLite sort every hit; FTS5 delivers ties in the order of ids.
        return (page.order_by(WORDS.c.rank).limit(LIMIT).offset(OFFSET),)

    def stale_keys(self, index: SearchIndex) -> tuple[str, ...]:
        """Return the keys that a program sets when it stops to keep an index."""
        return _STALE_KEYS[index]

    def is_damage(self, error: Exception) -> bool:
        """Whether FTS5 says that an index is damaged, or that it or a part of it is missing."""
        # A damaged length can make it ask for more memory than there is.
        return isinstance(error, MemoryError) or bool(_DAMAGE.search(str(as_standard(error))))


def _with_session(message: type[Message]) -> Select[int]:
    return select(message.id).join_from(message, Session, Session.id == message.session_id)


def _all_messages(whole: bool) -> Candidates:
    texts = _whole_texts() if whole else _indexed_texts()
    # A subquery: inside of a condition the expressions would be too deep for the parser.
    source = select(Message, *(text.label(name) for name, text in texts.items())).subquery()
    message = aliased(Message, source)
    searched = tuple(func.coalesce(source.c[name], "") for name in texts)
    return Candidates(_with_session(message), message, searched)


def _indexed_texts() -> dict[str, ColumnElement[str]]:
    return {
        f"searched_{name}": _expression(search_ddl.column_sql("messages", name))
        for name in search_ddl.WORDS.columns
    }


def _whole_texts() -> dict[str, ColumnElement[str]]:
    return {
        "whole_content": _expression(search_ddl.decoded_content_sql("messages")),
        "whole_tool_name": _expression("messages.tool_name"),
    }


def _expression(sql: str) -> ColumnElement[str]:
    return literal_column(f"({sql})", Text())
