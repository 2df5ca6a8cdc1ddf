"""Snippets: the piece of a hit that shows why it was found, with its matches marked."""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from hermes_orm.search.query import Node, positive_units
from hermes_orm.search.unicode61 import folded, token_end, token_start, tokens

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
    size = max([WINDOW_TOKENS, *(len(phrase.words) for phrase in phrases)])

    def snippet(columns: Sequence[str]) -> str:
        best = None
        for text in filter(None, columns):
            words = tokens(text)
            for window in _windows(words, phrases, size):
                if best is None or window.rank() > best[0].rank():
                    best = window, text, len(words)
        return _opening(columns) if best is None else _marked(*best)

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
            end = -1
            ends = [end := text.index(last, end + 1) for _ in range(text.count(last))]
        if not whole:
            return ends
        return [end - size for end in ends if end >= size and text[end - size : end] == whole]


Match = tuple[int, int, int]
"""The first token of a match, the one after the last, and the number of the phrase."""


class _Window(NamedTuple):
    """A stretch of tokens, and the matches in it."""

    first: int
    stop: int
    matches: list[Match]

    def rank(self) -> tuple[int, int]:
        """Return what makes one window better than another: phrases, then matches."""
        return len({phrase for _, _, phrase in self.matches}), len(self.matches)


def _windows(words: list[str], phrases: list[_Phrase], size: int) -> Iterator[_Window]:
    """The windows that centre a match in the tokens of a column, in their order."""
    found = sorted(
        [
            (start, start + len(phrase.words), number)
            for number, phrase in enumerate(phrases)
            for start in phrase.starts(words)
        ]
    )
    latest = max(0, len(words) - size)
    centred = [start - (size - (stop - start)) // 2 for start, stop, _ in found]
    for first in sorted({max(0, min(first, latest)) for first in centred}):
        following = found[bisect_left(found, (first,)) : bisect_left(found, (first + size,))]
        inside = [match for match in following if match[1] <= first + size]
        yield _Window(first, first + size, inside)


def _marked(window: _Window, text: str, size: int) -> str:
    """The window's part of a text of `size` tokens, its matches marked."""
    whole = folded(text)
    origin = token_start(whole, window.first)
    part = whole[origin : token_start(whole, window.stop)]
    end = start = origin if window.first else 0
    cut_after = window.stop < size
    marked = []
    for first, stop in sorted(_apart([match[:2] for match in window.matches])):
        begin = origin + token_start(part, first - window.first)
        marked += [text[end:begin], OPEN]
        end = origin + token_end(part, stop - 1 - window.first)
        marked += [text[begin:end], CLOSE]
    marked.append(text[end : origin + len(part.rstrip()) if cut_after else None])
    return _with_ellipses("".join(marked), cut_before=start > 0, cut_after=cut_after)


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
