"""The query language: from what a user typed to a tree of units, AND, OR and NOT.

A query is read once. Which of its units count depends on the route, so each route has its own
tree: words (units that have a token) or substrings (units that are not blank).
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import groupby
from typing import Final, TypeVar

from hermes_orm.codec import without_surrogates
from hermes_orm.search.cjk import is_cjk
from hermes_orm.search.unicode61 import tokens

MAX_QUERY_CHARACTERS: Final = 2_048
MIN_FALLBACK_CHARACTERS: Final = 3

_QUOTED: Final = re.compile(r'"([^"]*)"(\*?)')
_PIECE: Final = re.compile(r"([^*]+)(\**)")
_NOISE: Final = re.compile(r"[^\w.*\-\x80-\U0010ffff]", re.ASCII)
_NOISE_BESIDE_CJK: Final = re.compile(r"[^\w.*%\-\x80-\U0010ffff]", re.ASCII)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Unit:
    """One word or quoted phrase; `prefix` when a star followed it."""

    text: str
    prefix: bool = False
    quoted: bool = False


@dataclass(frozen=True, slots=True)
class And:
    """True when all parts are; none of them is an Or."""

    parts: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Or:
    """True when one of the parts is."""

    parts: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Not:
    """True when `kept` is and `dropped` is not."""

    kept: "Node"
    dropped: "Node"


Node = Unit | And | Or | Not


class Operator(StrEnum):
    """A boolean word; of several in a row the one that is listed first here counts."""

    NOT = "NOT"
    AND = "AND"
    OR = "OR"


Item = Unit | Operator


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """A query as typed, in items; each method gives the tree of one route, None for nothing."""

    items: tuple[Item, ...]
    is_cjk: bool

    def words(self) -> Node | None:
        """Return the tree for the word index."""
        return _tree(
            [item for item in self.items if isinstance(item, Operator) or tokens(item.text)]
        )

    def substrings(self) -> Node | None:
        """Return the tree for substring search, in which stars have no meaning."""
        return _tree(_without_stars(self.items))

    def fallback(self) -> Node | None:
        """Return the tree for substring search after no word was found.

        The words and, or, not don't count; a unit of less than three characters rules it out.
        """
        node = _tree(
            _without_stars(
                item
                for item in self.items
                if isinstance(item, Operator) or not _is_boolean_word(item)
            )
        )
        if node is None or min(len(u.text) for u in units(node)) < MIN_FALLBACK_CHARACTERS:
            return None
        return node


def parse(query: str | None) -> SearchQuery:
    """Return the query of a user's text, of which 2,048 characters count.

    Raises TypeError when it is neither text nor None.
    """
    if not isinstance(query, str | None):
        raise TypeError(f"query must be a string or None, not {type(query).__name__}")
    text = without_surrogates((query or "")[:MAX_QUERY_CHARACTERS].replace("\0", " "))
    beside_cjk = is_cjk(text)
    items = _read(text, _NOISE_BESIDE_CJK if beside_cjk else _NOISE)
    return SearchQuery(tuple(_settle(list(items))), beside_cjk)


def fold(
    node: Node,
    *,
    unit: Callable[[Unit], T],
    all_of: Callable[[list[T]], T],
    any_of: Callable[[list[T]], T],
    but_not: Callable[[T, T], T],
) -> T:
    """Return the tree rebuilt from its leaves by one function for each kind of node."""

    def rebuilt(node: Node) -> T:
        match node:
            case Unit():
                return unit(node)
            case And(parts):
                return all_of([rebuilt(part) for part in parts])
            case Or(parts):
                return any_of([rebuilt(part) for part in parts])
            case Not(kept, dropped):
                return but_not(rebuilt(kept), rebuilt(dropped))

    return rebuilt(node)


def units(node: Node) -> list[Unit]:
    """Return every unit of the tree."""
    return fold(
        node, unit=lambda unit: [unit], all_of=_chained, any_of=_chained, but_not=list.__add__
    )


def positive_units(node: Node) -> list[Unit]:
    """Return the units that a hit can show, those not under a NOT."""
    return fold(
        node,
        unit=lambda unit: [unit],
        all_of=_chained,
        any_of=_chained,
        but_not=lambda kept, dropped: kept,
    )


def _chained(lists: list[list[Unit]]) -> list[Unit]:
    return [unit for part in lists for unit in part]


# Reading


def _read(text: str, noise: re.Pattern[str]) -> Iterator[Item]:
    """The units and operators of `text`, in order."""
    end = 0
    for quoted in _QUOTED.finditer(text):
        yield from _read_plain(noise.sub(" ", text[end : quoted.start()]))
        yield Unit(quoted[1], prefix=bool(quoted[2]), quoted=True)
        end = quoted.end()
    yield from _read_plain(noise.sub(" ", text[end:]))


def _read_plain(text: str) -> Iterator[Item]:
    for word in text.split():
        if word in Operator.__members__:
            yield Operator(word)
            continue
        for piece, stars in _PIECE.findall(word):
            if stripped := piece.strip(".-"):
                yield Unit(stripped, prefix=bool(stars))


def _settle(items: list[Item]) -> Iterator[Item]:
    """The items without boolean words at the ends and with one operator between units."""
    if items and _is_boolean_word(items[0]):
        del items[0]
    if len(items) > 1 and _is_boolean_word(items[-1]):
        del items[-1]
    runs = [(kind, list(run)) for kind, run in groupby(items, key=type)]
    for position, (kind, run) in enumerate(runs):
        if kind is Unit:
            yield from run
        elif 0 < position < len(runs) - 1:
            yield next(operator for operator in Operator if operator in run)


def _is_boolean_word(item: Item) -> bool:
    if isinstance(item, Operator):
        return True
    return not (item.quoted or item.prefix) and item.text.upper() in Operator.__members__


def _without_stars(items: Iterable[Item]) -> list[Item]:
    """The items as substring search takes them, blank units left out."""
    return [
        item if isinstance(item, Operator) else replace(item, prefix=False)
        for item in items
        if isinstance(item, Operator) or item.text.strip()
    ]


# Building: implicit AND binds tightest, then NOT, AND, OR


def _tree(items: Sequence[Item]) -> Node | None:
    """The tree of the items.

    A side of an operator that has lost all its units is nothing: a false operand of OR and NOT,
    and what makes an AND nothing too.
    """
    if not any(isinstance(item, Operator) for item in items):
        return _group(items)
    branches = [_conjunction(branch) for branch in _split(items, Operator.OR)]
    return _joined(Or, [branch for branch in branches if branch])


def _conjunction(items: Sequence[Item]) -> Node | None:
    parts = [_exclusion(part) for part in _split(items, Operator.AND)]
    return _joined(And, [part for part in parts if part]) if all(parts) else None


def _exclusion(items: Sequence[Item]) -> Node | None:
    kept, *dropped = (_group(group) for group in _split(items, Operator.NOT))
    excluded = _joined(Or, [group for group in dropped if group])
    return Not(kept, excluded) if kept and excluded else kept


def _group(items: Sequence[Item]) -> Node | None:
    return _joined(And, [item for item in items if isinstance(item, Unit)])


def _joined(kind: type[And] | type[Or], parts: Sequence[Node]) -> Node | None:
    distinct = tuple(dict.fromkeys(parts))
    if len(distinct) < 2:
        return distinct[0] if distinct else None
    return kind(distinct)


def _split(items: Sequence[Item], operator: Operator) -> list[list[Item]]:
    """The stretches of `items` between occurrences of the operator."""
    stretches: list[list[Item]] = [[]]
    for item in items:
        if item is operator:
            stretches.append([])
        else:
            stretches[-1].append(item)
    return stretches
