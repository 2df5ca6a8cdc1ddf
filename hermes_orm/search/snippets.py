"""Snippets: the piece of a hit that shows why it was found, with its matches marked."""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from hermes_orm.search.query import Node, positive_units
from hermes_orm.search.unicode61 import token_spans, tokens

OPEN: Final = ">>>"
CLOSE: Final = "<<<"
ELLIPSIS: Final = "..."
WINDOW_TOKENS: Final = 40
PIECE_CHARACTERS: Final = 120
LEAD_CHARACTERS: Final = 40

Snippet = Callable[[Sequence[str]], str]
"""Makes the snippet of a hit from its searched columns, in the order of their importance."""


def substring_snippets(node: Node) -> Snippet:
    """Return the function for the hits of substring search and of every scan."""
    texts = sorted({unit.text for unit in positive_units(node)}, key=len, reverse=True)
    pattern = re.compile("|".join(map(re.escape, texts)), re.IGNORECASE)

    def snippet(columns: Sequence[str]) -> str:
        for text in columns:
            if found := pattern.search(text):
                start = max(0, found.start() - LEAD_CHARACTERS)
                stop = start + PIECE_CHARACTERS
                marked = pattern.sub(lambda unit: OPEN + unit[0] + CLOSE, text[start:stop])
                return _with_ellipses(marked, cut_before=start > 0, cut_after=stop < len(text))
        return _opening(columns)

    return snippet


def word_snippets(node: Node) -> Snippet:
    """Return the function for the hits of the word index."""
    phrases = list(
        dict.fromkeys(
            _Phrase(tuple(tokens(unit.text)), unit.prefix) for unit in positive_units(node)
        )
    )

    def snippet(columns: Sequence[str]) -> str:
        windows = (
            window
            for column, text in enumerate(columns)
            for window in _windows(column, tokens(text), phrases)
        )
        best = max(windows, key=_Window.rank, default=None)
        return _opening(columns) if best is None else best.shown(columns[best.column])

    return snippet


class _Phrase(NamedTuple):
    """The tokens of a unit; the last one is a prefix if the unit is."""

    words: tuple[str, ...]
    prefix: bool

    def starts(self, text: list[str]) -> list[int]:
        """Return at which tokens of `text` the phrase occurs."""
        *whole, last = self.words
        size = len(whole)
        if self.prefix:
            ends = [index for index, word in enumerate(text) if word.startswith(last)]
        else:
            ends = [index for index, word in enumerate(text) if word == last]
        return [end - size for end in ends if end >= size and text[end - size : end] == whole]


class _Window(NamedTuple):
    """A stretch of tokens around a match, and the matches in it as ranges of tokens."""

    column: int
    first: int
    stop: int
    phrases: int
    matches: list[tuple[int, int]]

    def rank(self) -> tuple[int, int, int, int]:
        """Return what makes one window better than another."""
        return self.phrases, len(self.matches), -self.column, -self.first

    def shown(self, text: str) -> str:
        """Return the window's part of `text`, its matches marked."""
        following = islice(token_spans(text), self.first, None)
        spans = list(islice(following, self.stop - self.first))
        start = spans[0][0] if self.first else 0
        cut_after = next(following, None) is not None
        marked = []
        end = start
        for match_first, match_stop in sorted(_apart(self.matches)):
            begin = spans[match_first - self.first][0]
            marked += [text[end:begin], OPEN]
            end = spans[match_stop - self.first - 1][1]
            marked += [text[begin:end], CLOSE]
        marked.append(text[end : spans[-1][1] if cut_after else None])
        return _with_ellipses("".join(marked), cut_before=start > 0, cut_after=cut_after)


def _windows(column: int, text: list[str], phrases: list[_Phrase]) -> Iterator[_Window]:
    """The window that centres it, for each match in the tokens of a column."""
    found = sorted(
        (start, start + len(phrase.words), number)
        for number, phrase in enumerate(phrases)
        for start in phrase.starts(text)
    )
    size = max([WINDOW_TOKENS, *(len(phrase.words) for phrase in phrases)])
    for start, stop, _ in found:
        first = max(0, min(start - (size - (stop - start)) // 2, len(text) - size))
        following = found[bisect_left(found, (first,)) : bisect_left(found, (first + size,))]
        inside = [match for match in following if match[1] <= first + size]
        numbers = {number for _, _, number in inside}
        yield _Window(column, first, first + size, len(numbers), [match[:2] for match in inside])


def _apart(matches: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The matches that do not overlap, longer ones preferred."""
    chosen: list[tuple[int, int]] = []
    for start, stop in sorted(matches, key=lambda match: match[0] - match[1]):
        if all(stop <= other_start or other_stop <= start for other_start, other_stop in chosen):
            chosen.append((start, stop))
    return chosen


def _opening(columns: Sequence[str]) -> str:
    """The beginning of the first column with text, for a row that changed since it was found."""
    text = next(filter(None, columns), "")
    return _with_ellipses(text[:PIECE_CHARACTERS], False, len(text) > PIECE_CHARACTERS)


def _with_ellipses(piece: str, cut_before: bool, cut_after: bool) -> str:
    return (ELLIPSIS if cut_before else "") + piece + (ELLIPSIS if cut_after else "")
