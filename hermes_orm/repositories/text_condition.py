"""A query tree as a condition on texts: substring search without an index, or the check of one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count

from sqlalchemy import ColumnElement, Text, and_, bindparam, not_, or_

from hermes_orm.dialects.expressions import ascii_lower, contains
from hermes_orm.search.compilers import spellings
from hermes_orm.search.query import Node, Unit, fold, units


@dataclass(frozen=True)
class TextCondition:
    """A tree as a condition on texts. Trees of the same shape are equal: they share a statement."""

    tree: Node = field(compare=False)
    shape: str

    @classmethod
    def of(cls, tree: Node) -> TextCondition:
        """Return the condition that a tree makes."""
        shape = fold(
            tree,
            unit=lambda unit: f"{len(spellings(unit))}{'f' * _has_case(unit)}",
            all_of=lambda parts: f"({' '.join(parts)})",
            any_of=lambda parts: f"({'|'.join(parts)})",
            but_not=lambda kept, dropped: f"({kept}-{dropped})",
        )
        return cls(tree, shape)

    @property
    def params(self) -> dict[str, str]:
        """Return the values of the parameters, which are numbered in the order of the tree."""
        parts = [part for unit in units(self.tree) for part in spellings(unit)]
        return {f"part_{number}": part for number, part in enumerate(parts)}

    def on(self, texts: Sequence[ColumnElement[str]]) -> ColumnElement[bool]:
        """Return the condition: a unit is true when it occurs in one of the texts."""
        numbers = count()
        folded = [ascii_lower(text) for text in texts]

        def occurs(unit: Unit) -> ColumnElement[bool]:
            parts = [bindparam(f"part_{next(numbers)}", type_=Text()) for _ in spellings(unit)]
            searched = folded if _has_case(unit) else texts
            return or_(*(contains(text, part) for part in parts for text in searched)).self_group()

        return fold(
            self.tree,
            unit=occurs,
            all_of=partial(_balanced, and_),
            any_of=partial(_balanced, or_),
            but_not=lambda kept, dropped: and_(kept, not_(dropped)).self_group(),
        )


def _has_case(unit: Unit) -> bool:
    """Whether A to Z must be folded to find the unit."""
    return any(letter.isascii() and letter.isalpha() for letter in "".join(spellings(unit)))


def _balanced(
    operator: Callable[..., ColumnElement[bool]], parts: Sequence[ColumnElement[bool]]
) -> ColumnElement[bool]:
    """The parts in one expression; SQLite limits the depth of a chain."""
    if len(parts) == 1:
        return parts[0]
    middle = len(parts) // 2
    halves = (_balanced(operator, half) for half in (parts[:middle], parts[middle:]))
    return operator(*halves).self_group()
