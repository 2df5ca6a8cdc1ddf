"""Port of FTS5's tokenizer `unicode61` with its default settings."""

import re
from bisect import bisect
from itertools import accumulate
from string import ascii_lowercase, ascii_uppercase
from typing import Final

from hermes_orm.search.unicode61_table import CASED, LATIN, MARKS, RUNS

_MARK: Final = MARKS[0]  # stands for every mark that vanishes, so that offsets are kept
_OUTER_MARKS: Final = re.compile(f"(?<![^ ]){_MARK}+")
_LAST_CACHED: Final = 0xFFFF  # bounds the memory that texts in rare scripts can claim


class _Folding(dict[int, str]):
    """Code point -> folded character; a blank for separators. Filled as characters are seen."""

    _bounds: Final = tuple(accumulate(map(int, RUNS.split())))

    def __missing__(self, code: int) -> str:
        folded = chr(code) if bisect(self._bounds, code) % 2 else " "
        if code <= _LAST_CACHED:
            self[code] = folded
        return folded


_FOLDS: Final = (
    *CASED,
    *((letters, folded * len(letters)) for folded, letters in LATIN.items()),
    (ascii_uppercase, ascii_lowercase),
    (MARKS, _MARK * len(MARKS)),
)
_FOLDING: Final = _Folding(
    {ord(given): folded for pair in _FOLDS for given, folded in zip(*pair, strict=True)}
)


def tokens(text: str) -> list[str]:
    """Return the folded tokens of `text`; none of them holds ASCII other than letters, digits."""
    return text.translate(_FOLDING).replace(_MARK, "").split()


def folded(text: str) -> str:
    """Return `text` character for character, its tokens folded and separated by blanks.

    A mark inside a token is kept in some form, so that offsets are those of `text`.
    """
    result = text.translate(_FOLDING)
    if _MARK in result:
        result = _OUTER_MARKS.sub(lambda marks: " " * len(marks[0]), result)
    return result


def token_start(folded: str, number: int) -> int:
    """Return where token `number`, counted from 0, begins in folded text; without one, its end."""
    split = folded.split(None, number)
    return len(folded) - len(split[number]) if number < len(split) else len(folded)


def token_end(folded: str, number: int) -> int:
    """Return where token `number` ends in folded text."""
    end = folded.find(" ", token_start(folded, number))
    return len(folded) if end < 0 else end
