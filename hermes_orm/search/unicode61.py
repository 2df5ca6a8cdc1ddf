"""Port of FTS5's tokenizer `unicode61` with its default settings."""

from bisect import bisect
from collections.abc import Sequence
from itertools import accumulate
from string import ascii_lowercase, ascii_uppercase
from typing import Final

from hermes_orm.search.unicode61_table import CASED, LATIN, MARKS, RUNS

_MARK: Final = MARKS[0]  # stands for every mark that vanishes, so that offsets are kept
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


def folded(text: str) -> tuple[str, Sequence[int]]:
    """Return the tokens of `text`, as `tokens` does, but where they stand, among blanks.

    The second result gives the place in `text` of each character and of the end.
    """
    result = text.translate(_FOLDING)
    if _MARK not in result:
        return result, range(len(text) + 1)
    kept = [place for place, sign in enumerate(result) if sign != _MARK]
    return result.replace(_MARK, ""), [*kept, len(text)]
