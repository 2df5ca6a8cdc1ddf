"""A query tree as a condition on texts: substring search without an index, or the check of one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Boolean, ColumnElement, Text, bindparam
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

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
        return _holds(self, texts)


class _holds(FunctionElement[bool]):
    """Whether texts hold what a tree asks for; they are computed once per row."""

    name = "holds"
    type = Boolean()
    inherit_cache = False

    def __init__(self, condition: TextCondition, texts: Sequence[ColumnElement[str]]) -> None:
        parts = [bindparam(name, type_=Text()) for name in condition.params]
        super().__init__(*texts, *parts)
        self.tree = condition.tree
        self.width = len(texts)


@compiles(_holds, "sqlite")
def _(element: _holds, compiler: SQLCompiler, **kw: Any) -> str:
    return _rendered(element, compiler, position="instr", folded="lower({})", **kw)


@compiles(_holds, "postgresql")
def _(element: _holds, compiler: SQLCompiler, **kw: Any) -> str:
    return _rendered(element, compiler, position="strpos", folded='lower({} COLLATE "C")', **kw)


def _rendered(
    element: _holds, compiler: SQLCompiler, *, position: str, folded: str, **kw: Any
) -> str:
    processed = [compiler.process(clause, **kw) for clause in element.clauses]
    texts, parts = processed[: element.width], iter(processed[element.width :])
    columns = [f"{text} AS text_{number}" for number, text in enumerate(texts)]
    if any(map(_has_case, units(element.tree))):
        columns += [f"{folded.format(text)} AS folded_{n}" for n, text in enumerate(texts)]

    def occurs(unit: Unit) -> str:
        kind = "folded" if _has_case(unit) else "text"
        found = [
            f"{position}({kind}_{number}, {part}) > 0"
            for part in (next(parts) for _ in spellings(unit))
            for number in range(element.width)
        ]
        return f"({' OR '.join(found)})"

    tree = fold(
        element.tree,
        unit=occurs,
        all_of=lambda parts: _chained(parts, "AND"),
        any_of=lambda parts: _chained(parts, "OR"),
        but_not=lambda kept, dropped: f"({kept} AND NOT {dropped})",
    )
    # LIMIT keeps both planners from computing the texts for each mention of them.
    return f"(SELECT {tree} FROM (SELECT {', '.join(columns)} LIMIT 1) AS searched)"


def _chained(parts: Sequence[str], operator: str) -> str:
    """The parts in one expression that is not deeper than it must be, since SQLite limits that."""
    if len(parts) == 1:
        return parts[0]
    middle = len(parts) // 2
    halves = (_chained(half, operator) for half in (parts[:middle], parts[middle:]))
    return f"({f' {operator} '.join(halves)})"


def _has_case(unit: Unit) -> bool:
    """Whether A to Z must be folded to find the unit."""
    return any(letter.isascii() and letter.isalpha() for letter in "".join(spellings(unit)))
