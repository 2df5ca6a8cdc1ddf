"""Statements that are compiled once and run on the driver's own cursor."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from sqlalchemy import Dialect, Float, Select
from sqlalchemy.sql import visitors
from sqlalchemy.sql.elements import BindParameter, ClauseElement
from sqlalchemy.sql.selectable import CompoundSelect

Params = Mapping[str, Any]

_LITERAL = re.compile(r"__\[POSTCOMPILE_(\w+)\]")


def _inline_constants(statement: ClauseElement) -> None:
    """Have the constants of a statement written into its text.

    Bound, they cost more than their binding: where a partial index compares the column with a
    constant, SQLite prepares the whole statement again for each execution.
    """
    for element in visitors.iterate(statement):
        if isinstance(element, BindParameter) and not (element.required or element.expanding):
            value = element.value
            is_text = isinstance(value, str) and "\0" not in value
            element.literal_execute = is_text or isinstance(value, int)


class CompiledText:
    """One statement in one dialect: its text and the order of its parameters."""

    __slots__ = ("defaults", "names", "positional", "text")

    def __init__(self, statement: ClauseElement, dialect: Dialect) -> None:
        _inline_constants(statement)
        compiled: Any = statement.compile(dialect=dialect)
        literals = {
            compiled.bind_names[bind]: compiled.render_literal_value(bind.value, bind.type)
            for bind in compiled.literal_execute_params
        }
        self.text: str = _LITERAL.sub(lambda mark: literals[mark[1]], compiled.string)
        self.positional: bool = compiled.positional
        self.names: tuple[str, ...] = tuple(
            name
            for name in compiled.positiontup or compiled.bind_names.values()
            if name not in literals
        )
        self.defaults: dict[str, Any] = {}
        for bind, name in compiled.bind_names.items():
            if name in literals:
                continue
            impl = bind.type.dialect_impl(dialect)
            converts = impl.bind_processor(dialect) and not isinstance(impl, Float)
            if bind.expanding or converts:  # (a Float only calls float(): ours are floats)
                raise TypeError(f"parameter {name!r} cannot be bound on the driver's cursor")
            if not bind.required:
                self.defaults[name] = bind.value

    def values(self, params: Params) -> tuple[Any, ...]:
        """Return the parameters in the order of the statement's placeholders."""
        defaults = self.defaults
        if not defaults:
            return tuple([params[name] for name in self.names])
        return tuple([params[n] if n in params else defaults[n] for n in self.names])

    def named(self, params: Params) -> dict[str, Any]:
        """Return the parameters by name, literals of the statement included."""
        return {**self.defaults, **params}


class Prepared:
    """A Core statement over the models, built once, compiled once per dialect.

    Its parameters are `bindparam("name")`; their values already have the column's Python type,
    since the driver receives them as they are. Constants stand in the text. Given as a function,
    the statement is built when it is first needed: that of a walk takes longer than a query.
    """

    on_driver: ClassVar[bool] = True
    """False sends every statement through `Connection.exec_driver_sql`, for echo and events."""

    __slots__ = ("_compiled", "_modifies", "_statement")

    def __init__(
        self,
        statement: ClauseElement | Callable[[], ClauseElement],
        *,
        modifies: bool | None = None,
    ) -> None:
        self._statement = statement
        self._modifies = modifies
        self._compiled: dict[type[Dialect], CompiledText] = {}

    def __repr__(self) -> str:
        return f"<Prepared {type(self.statement).__name__}>"

    @property
    def statement(self) -> ClauseElement:
        """The statement."""
        if not isinstance(self._statement, ClauseElement):
            self._statement = self._statement()
        return self._statement

    @property
    def modifies(self) -> bool:
        """Whether the statement changes rows."""
        if self._modifies is None:
            self._modifies = not isinstance(self.statement, Select | CompoundSelect)
        return self._modifies

    def compiled(self, dialect: Dialect) -> CompiledText:
        """Return the statement's text and parameter order for `dialect`."""
        found = self._compiled.get(type(dialect))
        if found is None:
            found = self._compiled[type(dialect)] = CompiledText(self.statement, dialect)
        return found
