"""The tsvector of a message, built here so that no server setting decides what is found.

Word tokens are lexemes with positions. Adjacent CJK characters are lexemes that begin with `~`,
which no token does, without positions. No lexeme holds a quote or backslash.
"""

from typing import Final

from hermes_orm.search.cjk import cjk_pairs
from hermes_orm.search.text import search_columns
from hermes_orm.search.unicode61 import tokens

TOKENIZER_VERSION: Final = 1
"""To be raised when the entries of the same messages change: stores then make them anew."""

MAX_LEXEME_BYTES: Final = 2_040

_SAFE_CHARACTERS: Final = MAX_LEXEME_BYTES // 4
_COLUMN_GAP: Final = 2  # keeps a phrase from crossing columns


def tsvector_text(
    content: object, tool_name: str | None, tool_calls: str | None, role: str
) -> tuple[str, int]:
    """Return the text of a message's tsvector, to be cast, and its number of word tokens.

    `content` is decoded, `tool_calls` the stored JSON. Tool rows have no CJK pairs, nor do tool
    calls: substring search covers neither. The cast merges the entries of a lexeme, keeps 256
    positions of it and takes positions beyond 16,383 for 16,383.
    """
    columns = search_columns(content, tool_name, tool_calls, role)
    entries: list[str] = []
    position = 1
    for column in columns:
        words = lexemes(column)
        entries += [f"'{word}':{at}" for at, word in enumerate(words, position)]
        position += len(words) + _COLUMN_GAP
    length = len(entries)
    if role != "tool":
        entries += [*pair_lexemes(columns[0]), *pair_lexemes(columns[1])]
    return " ".join(entries), length


def lexemes(text: str) -> list[str]:
    """Return the tokens of `text`, each cut to what a lexeme can hold."""
    return [word if len(word) <= _SAFE_CHARACTERS else _cut(word) for word in tokens(text)]


def pair_lexemes(text: str) -> list[str]:
    """Return the quoted lexemes of the CJK pairs of `text`."""
    return [f"'~{pair}'" for pair in cjk_pairs(text)]


def _cut(word: str) -> str:
    return word.encode()[:MAX_LEXEME_BYTES].decode(errors="ignore")
