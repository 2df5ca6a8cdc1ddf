"""Rows of several columns as one bound parameter, so that a batch is one statement."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Select,
    SQLColumnExpression,
    Text,
    bindparam,
    cast,
    column,
    literal_column,
    select,
    true,
)
from sqlalchemy.dialects.postgresql import Insert, insert
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeEngine

from hermes_orm.models.base import Base


class _json_rows(FunctionElement[Any]):
    """The elements of a JSON array, as a table with the column `value`."""

    name = "json_rows"
    inherit_cache = True


@compiles(_json_rows, "sqlite")
def _(element: _json_rows, compiler: SQLCompiler, **kw: Any) -> str:
    return f"json_each({compiler.process(element.clauses, **kw)})"


@compiles(_json_rows, "postgresql")
def _(element: _json_rows, compiler: SQLCompiler, **kw: Any) -> str:
    return f"json_array_elements(CAST({compiler.process(element.clauses, **kw)} AS json))"


class _json_part(FunctionElement[str]):
    """`_json_part(array, place)`: an element of a JSON array."""

    name = "json_part"
    type = Text()
    inherit_cache = True

    def __init__(self, array: SQLColumnExpression[Any], place: int) -> None:
        super().__init__(array, literal_column(str(place), BigInteger()))


@compiles(_json_part, "sqlite")
def _(element: _json_part, compiler: SQLCompiler, **kw: Any) -> str:
    array, place = (compiler.process(part, **kw) for part in element.clauses)
    return f"json_extract({array}, '$[{place}]')"


@compiles(_json_part, "postgresql")
def _(element: _json_part, compiler: SQLCompiler, **kw: Any) -> str:
    array, place = (compiler.process(part, **kw) for part in element.clauses)
    return f"({array} ->> {place})"


def bound_rows(name: str, types: Mapping[str, TypeEngine[Any]]) -> Select[Any]:
    """Select the rows of one parameter, whose columns have these types.

    Its value is made by `row_list`.
    """
    rows: Any = _json_rows(bindparam(name, type_=Text()))
    value = rows.table_valued(column("value", JSON())).c.value
    return select(
        *(
            cast(_json_part(value, place), type_).label(key)
            for place, (key, type_) in enumerate(types.items())
        )
    )


def insert_rows(model: type[Base], names: Sequence[str], parameter: str) -> Insert:
    """Return an INSERT of the columns `names` that can go on with `on_conflict_do_...`."""
    types = {name: model.__table__.c[name].type for name in names}
    # SQLite takes ON for a join's, unless a WHERE stands between.
    rows = bound_rows(parameter, types).where(true())
    return insert(model).from_select(list(names), rows)


def row_list(rows: Iterable[Sequence[Any]]) -> str:
    """Return the value for `bound_rows`; texts are free of U+0000 and lone surrogates."""
    return json.dumps([list(row) for row in rows])
