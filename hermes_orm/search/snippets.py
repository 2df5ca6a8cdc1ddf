"""Snippets: the piece of a hit that shows why it was found, with its matches marked."""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from hermes_orm.search.query import Node, positive_units
from hermes_orm.search.unicode61 import folded, tokens

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
        best, best_rank = None, (0, 0)
        for text in filter(None, columns):
            where, places = folded(text)
            for window in _windows(where, phrases, size):
                if (rank := window.rank()) > best_rank:
                    best, best_rank = (text, places, window), rank
        return _opening(columns) if best is None else _shown(*best)

    return snippet


class _Phrase(NamedTuple):
    """The tokens of a unit; the last one is a prefix if the unit is."""

    words: tuple[str, ...]
    prefix: bool

    def occurrences(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield where the phrase begins and ends in folded text."""
        first = self.words[0]
        begin = text.find(first)
        while begin >= 0:
            if (begin == 0 or text[begin - 1] == " ") and (end := self._end(text, begin)):
                yield begin, end
            begin = text.find(first, begin + 1)

    def _end(self, text: str, at: int) -> int:
        """Where the phrase ends if it stands at a place; 0 if it does not."""
        for number, word in enumerate(self.words, 1):
            while text.startswith(" ", at):
                at += 1
            if not text.startswith(word, at):
                return 0
            at += len(word)
            if at < len(text) and text[at] != " ":  # the token is longer
                if not self.prefix or number < len(self.words):
                    return 0
                at = text.find(" ", at)
                return at if at >= 0 else len(text)
        return at


class _Match(NamedTuple):
    """Where a phrase occurs: its tokens, counted from 0, and its characters."""

    first: int
    stop: int
    phrase: int
    begin: int
    end: int


class _Window(NamedTuple):
    """A stretch of tokens of folded text and the matches in it, of which there is at least one."""

    text: str
    size: int
    first: int
    stop: int
    matches: list[_Match]

    def rank(self) -> tuple[int, int]:
        """Return what makes one window better than another: phrases, then matches."""
        return len({match.phrase for match in self.matches}), len(self.matches)

    def begin(self) -> int:
        """Return where the first token begins, or the text, if the window begins with it."""
        if self.first == 0:
            return 0
        near = self.matches[0]
        before = self.text[: near.begin].rsplit(None, near.first - self.first)
        end = len(before[0])  # of the last token that is left out
        return near.begin - len(self.text[end : near.begin].lstrip(" "))

    def end(self) -> int:
        """Return where the last token ends, or the text, if the window ends with it."""
        if self.stop >= self.size:
            return len(self.text)
        near = self.matches[-1]
        after = self.text[near.begin :].split(None, self.stop - near.first)
        return len(self.text[: len(self.text) - len(after[-1])].rstrip(" "))


def _windows(text: str, phrases: list[_Phrase], size: int) -> Iterator[_Window]:
    """The windows that centre a match in folded text, in their order."""
    found = [
        (begin, end, number)
        for number, phrase in enumerate(phrases)
        for begin, end in phrase.occurrences(text)
    ]
    if not found:
        return
    matches = []
    token = at = 0
    for begin, end, number in sorted(found):
        token += len(text[at:begin].split())
        at = begin
        matches.append(_Match(token, token + len(phrases[number].words), number, begin, end))
    count = token + len(text[at:].split())
    latest = max(0, count - size)
    centred = [match.first - (size - (match.stop - match.first)) // 2 for match in matches]
    for first in sorted({max(0, min(first, latest)) for first in centred}):
        following = matches[bisect_left(matches, (first,)) : bisect_left(matches, (first + size,))]
        inside = [match for match in following if match.stop <= first + size]
        yield _Window(text, count, first, first + size, inside)


def _shown(text: str, places: Sequence[int], window: _Window) -> str:
    """The window's part of `text`, its matches marked."""
    start, stop = window.begin(), window.end()
    marked = []
    at = places[start] if start else 0
    for begin, end in sorted(_apart(window.matches)):
        marked += [text[at : places[begin]], OPEN, text[places[begin] : places[end]], CLOSE]
        at = places[end]
    marked.append(text[at : places[stop]])
    return _with_ellipses(
        "".join(marked), cut_before=start > 0, cut_after=window.stop < window.size
    )


def _apart(matches: list[_Match]) -> list[tuple[int, int]]:
    """The characters of matches that do not overlap, more tokens preferred."""
    if len(matches) == 1:
        return [matches[0][3:]]
    chosen: list[tuple[int, int]] = []
    for match in sorted(matches, key=lambda match: match.first - match.stop):
        begin, end = match.begin, match.end
        if all(end <= other_begin or other_end <= begin for other_begin, other_end in chosen):
            chosen.append((begin, end))
    return chosen


def _opening(columns: Sequence[str]) -> str:
    """The beginning of the first column with text, for a row that changed since it was found."""
    text = next(filter(None, columns), "")
    return _with_ellipses(text[:PIECE_CHARACTERS], False, len(text) > PIECE_CHARACTERS)


def _with_ellipses(piece: str, cut_before: bool, cut_after: bool) -> str:
    return (ELLIPSIS if cut_before else "") + piece + (ELLIPSIS if cut_after else "")
