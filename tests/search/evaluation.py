"""What a query tree means, evaluated in Python on the columns of one message."""

from collections.abc import Callable, Sequence

from hermes_orm.search.query import Node, Unit, fold
from hermes_orm.search.unicode61 import tokens


def evaluate(node: Node, unit: Callable[[Unit], bool]) -> bool:
    def but_not(kept: bool, dropped: bool) -> bool:
        return kept and not dropped

    return fold(node, unit=unit, all_of=all, any_of=any, but_not=but_not)


def matches_words(node: Node, columns: Sequence[str]) -> bool:
    """Whether each unit that has to is a phrase of one column."""
    texts = [tokens(column) for column in columns]
    return evaluate(node, lambda unit: any(holds_phrase(text, unit) for text in texts))


def holds_phrase(text: list[str], unit: Unit) -> bool:
    *whole, last = tokens(unit.text)
    size = len(whole)
    return any(
        text[index - size : index] == whole
        and (text[index].startswith(last) if unit.prefix else text[index] == last)
        for index in range(size, len(text))
    )


def matches_substrings(node: Node, columns: Sequence[str]) -> bool:
    """Whether each unit that has to occurs inside a column, in any case."""
    texts = [column.lower() for column in columns]
    return evaluate(node, lambda unit: any(unit.text.lower() in text for text in texts))
