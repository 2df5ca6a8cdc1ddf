"""Whether the texts of a message are what a query asks for, without a database."""

from collections.abc import Callable, Sequence

from hermes_orm.search.compilers import spellings
from hermes_orm.search.query import Node, Unit, fold
from hermes_orm.search.unicode61 import tokens
from hermes_orm.session_text import fold_ascii


def holds_substrings(node: Node, texts: Sequence[str]) -> bool:
    """Whether texts hold what a tree asks for, as the scan of a database sees it."""
    folded = [fold_ascii(text) for text in texts]
    return _is_true(
        node, lambda unit: any(part in text for part in spellings(unit) for text in folded)
    )


def holds_words(node: Node, texts: Sequence[str]) -> bool:
    """Whether texts hold the words and phrases of a tree, as the word index sees it."""
    columns = [tokens(text) for text in texts]
    return _is_true(node, lambda unit: any(_holds_phrase(words, unit) for words in columns))


def _is_true(node: Node, occurs: Callable[[Unit], bool]) -> bool:
    def but_not(kept: bool, dropped: bool) -> bool:
        return kept and not dropped

    return fold(node, unit=occurs, all_of=all, any_of=any, but_not=but_not)


def _holds_phrase(words: Sequence[str], unit: Unit) -> bool:
    *whole, last = tokens(unit.text)
    size = len(whole)
    return any(
        words[end - size : end] == whole
        and (words[end].startswith(last) if unit.prefix else words[end] == last)
        for end in range(size, len(words))
    )
