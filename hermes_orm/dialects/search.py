"""What the statements that search messages have in common on both databases."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from sqlalchemy import BigInteger, ColumnElement, Select, bindparam

from hermes_orm.models import Message

LIMIT = bindparam("limit", type_=BigInteger())
OFFSET = bindparam("offset", type_=BigInteger())


class SearchIndex(StrEnum):
    """An index of the searched texts of messages."""

    WORDS = "words"
    SUBSTRINGS = "substrings"
    PAIRS = "pairs"
    """Of substrings, too: of those that are runs of CJK letters, where a tokenizer is installed."""


class Candidates(NamedTuple):
    """Messages, each joined with its session, among which hits are looked for."""

    rows: Select[int]
    """Selects their ids."""
    message: type[Message]
    """How `rows` names the messages."""
    texts: tuple[ColumnElement[str], ...]
    """Content, tool name and tool calls as they are searched; empty for an exact index."""
