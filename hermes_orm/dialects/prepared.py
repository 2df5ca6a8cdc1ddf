"""Statements that are compiled once and run on the driver's own cursor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from sqlalchemy import Dialect, Float, Select
from sqlalchemy.sql.elements import ClauseElement, CompilerElement
from sqlalchemy.sql.selectable import CompoundSelect

Params = Mapping[str, Any]


class CompiledText:
    """One statement in one dialect: its text and the order of its parameters."""

    __slots__ = ("defaults", "names", "positional", "text")

    def __init__(self, statement: CompilerElement, dialect: Dialect) -> None:
        compiled: Any = statement.compile(dialect=dialect)
        self.text: str = compiled.string
        self.positional: bool = compiled.positional
        self.names: tuple[str, ...] = tuple(compiled.positiontup or compiled.bind_names.values())
        self.defaults: dict[str, Any] = {}
        for bind, name in compiled.bind_names.items():
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

    Its parameters are `bindparam("name")`; their values already have the column's Python type, since the
    driver receives them as they are.
    """

    on_driver: ClassVar[bool] = True
    """False sends every statement through `Connection.exec_driver_sql` (echo, events; for debugging)."""

    __slots__ = ("_compiled", "modifies", "statement")

    def __init__(self, statement: ClauseElement, *, modifies: bool | None = None) -> None:
        self.statement = statement
        self.modifies = (
            modifies
            if modifies is not None
            else not isinstance(statement, Select | CompoundSelect)
        )
        self._compiled: dict[type[Dialect], CompiledText] = {}

    def __repr__(self) -> str:
        return f"<Prepared {type(self.statement).__name__}>"

    def compiled(self, dialect: Dialect) -> CompiledText:
        """Return the statement's text and parameter order for `dialect`."""
        found = self._compiled.get(type(dialect))
        if found is None:
            found = self._compiled[type(dialect)] = CompiledText(self.statement, dialect)
        return found
